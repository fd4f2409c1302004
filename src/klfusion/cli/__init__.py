"""The command line: commands, terminal output and the demo.

Nothing imports it.
"""
