"""Small tools with no statistics in them: array types, checks of settings, text, memory, threads.

Nothing here imports another package of klfusion but `klfusion.errors`.
"""
