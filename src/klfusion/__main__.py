"""``python -m klfusion``: the command line."""

from klfusion.cli.commands import main

if __name__ == "__main__":
    main()
