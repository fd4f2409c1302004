"""Files: safetensors with a checked JSON header, written atomically.

Reading a file never executes code.
"""
