"""Clusters merged, moved and dissolved one step at a time.

Searches over binary plans that evaluate Jensen gaps; the size is chosen elsewhere.
"""
