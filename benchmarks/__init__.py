"""Ratios to peers, measured in one run: ``python -m benchmarks NAME --out FILE.json``."""
