"""Files: safetensors with a checked JSON header, written atomically.

No file is ever unpickled.
"""
