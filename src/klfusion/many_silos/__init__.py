"""Matching of very many silos: a sample is clustered, then all silos are assigned in sweeps.

Only sums over silos are kept, so silos may lie in batches.
"""
