"""Tools without statistics: array types, checks of settings, text, memory, threads, progress.

Modules here import no package of klfusion except `klfusion.errors`.
"""
