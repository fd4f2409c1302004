"""From matched components to a global one: average, product, hierarchical, robust.

One file per rule; nothing here changes a matching.
"""
