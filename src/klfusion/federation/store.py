"""The folder of a server: messages as they came, and a journal of them."""

import hashlib
import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote

from klfusion.errors import KLFusionError
from klfusion.federation.round import FIT, SECOND, Reply
from klfusion.federation.signing import SUFFIX
from klfusion.io.atomic import locked, write_atomically

FILES = {FIT: "silo-{}.safetensors", SECOND: "second-{}.safetensors"}
_JOURNAL = "journal.jsonl"


@contextmanager
def alone(store: Path | None) -> Iterator[None]:
    """Hold the folder while this process lives; two servers would mix their messages."""
    if store is None:
        yield
        return
    with (store / "lock").open("wb") as file:
        if not locked(file):
            text = f"{store}: expected a folder without another server"
            raise KLFusionError(f"{text}, got one that is still running: end it first")
        yield


def keep(store: Path, name: str, sender: str, reply: Reply, request: str) -> None:
    """Write the message of a silo, then a line of the journal."""
    path = store / FILES[request].format(quote(name, safe=""))
    if reply.signature:
        write_atomically(f"{path}{SUFFIX}", [memoryview(reply.signature)])
    write_atomically(path, [memoryview(reply.data)])
    line = {"request": request, "silo": name, "sender": sender,
            "sha256": sha256(reply.data), "bytes": len(reply.data),
            "received": time.strftime("%Y-%m-%d %H:%M:%SZ", time.gmtime())}  # fmt: skip
    with (store / _JOURNAL).open("a", encoding="utf-8") as file:
        file.write("\n" * (file.tell() > 0) + json.dumps(line))  # also after a cut line
        file.flush()
        os.fsync(file.fileno())


def messages(store: Path, request: str) -> Iterator[tuple[Path, Reply]]:
    """Messages of the folder, with their files."""
    for path in sorted(store.glob(FILES[request].format("*"))):
        signature = Path(f"{path}{SUFFIX}")
        yield path, Reply(path.read_bytes(), signature.read_bytes() if signature.is_file() else b"")


def journal(store: Path | None) -> list[dict[str, Any]]:
    """Accepted messages in the order of arrival; a last line cut by a crash is left out."""
    path = None if store is None else store / _JOURNAL
    if path is None or not path.is_file():
        return []
    found = []
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        with suppress(ValueError):
            found.append(json.loads(line))
    return found


def file_key(name: str) -> str:
    """What names of files that some file systems take for equal have in common."""
    return quote(name, safe="").lower()


def sha256(data: bytes) -> str:
    """Hash of a message, in hexadecimal digits."""
    return hashlib.sha256(data).hexdigest()
