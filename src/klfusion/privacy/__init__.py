"""Noise for a promise of privacy: mechanism, budgets, what can be promised, and audits."""
