"""Golden results: what `klfusion.fuse` returns on small problems, as JSON that changes on purpose.

``python -m tests.golden`` renews ``golden.json`` and prints what changed.
"""
