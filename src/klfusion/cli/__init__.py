"""The command line: commands, terminal output and the demo; nothing imports it."""
