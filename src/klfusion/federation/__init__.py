"""Frameworks that move posteriors from where they are fitted to where they are fused."""
