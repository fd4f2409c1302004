"""A process that sends over a folder as a silo that fails: ``folder_site.py NAME FOLDER``."""

import os
import signal
import sys
from pathlib import Path

from faults import ROUND, changed, posterior

from klfusion.federation import Site, folder

if __name__ == "__main__":
    name, shared = sys.argv[1], Path(sys.argv[2])
    if name == "killed":  # when the file has been written and not yet renamed
        os.replace = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
        folder.send(shared, posterior(name))
    message = changed(ROUND, ROUND.message(Site(name), posterior(name)), name)
    (shared / "inbox" / f"{name}-fit-0.safetensors").write_bytes(message.data)
