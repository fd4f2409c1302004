"""Tools without statistics; modules here import nothing of klfusion but `klfusion.errors`."""
