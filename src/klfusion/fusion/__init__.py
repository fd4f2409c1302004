"""The result of a fusion, its settings, and how it is assembled from a matching.

A fusion is a value: it holds what was found and searches nothing.
"""
