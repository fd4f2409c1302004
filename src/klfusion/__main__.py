"""``python -m klfusion``: the command line."""

from klfusion.cli import main

if __name__ == "__main__":
    main()
