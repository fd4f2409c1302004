"""Federated frameworks: transport of posteriors from silos to a server that fuses them."""
