"""Files: safetensors with a checked JSON header, written atomically; no code is executed."""
