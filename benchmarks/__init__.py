"""Ratios against peers, each measured in one run: ``python -m benchmarks NAME --out FILE.json``."""
