"""A round over a shared folder: sites add files to its inbox, a coordinator checks and fuses them.

``round.json`` says what is asked for, ``inbox/`` holds messages, ``manifest.json`` the result.
"""

import json
import os
import stat
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote

from klfusion.errors import FileFormatError, KLFusionError
from klfusion.federation import signing
from klfusion.federation.round import FIT, SECOND, VERSION, Reply, Round, Site, one_line
from klfusion.federation.server import Server, sha256
from klfusion.federation.status import write_status
from klfusion.io.atomic import write_atomically
from klfusion.posteriors.posterior import Posterior

_ROUND, _MANIFEST, _FUSED, _INBOX = "round.json", "manifest.json", "fused.safetensors", "inbox"
_MAX_JSON = 2**20  # bytes of a file other than a posterior
_Path = str | os.PathLike[str]


def send(folder: _Path, posterior: Posterior, key: _Path | None = None) -> Path:
    """Add a posterior to the inbox; a file appears there whole, and none is ever changed.

    Equal messages have equal names, so that sending again after an interruption is safe.
    """
    asked = read_round(folder)
    definition = Round(name=asked["round"], max_bytes=asked["max_bytes"])
    site = Site(posterior.name, {"key": key} if key else {})
    message = definition.message(site, posterior, asked["request"])
    name = f"{quote(posterior.name, safe='')}-{asked['request']}-{sha256(message.data)[:16]}"
    path = Path(folder) / _INBOX / f"{name}.safetensors"
    if message.signature:  # before the message, which counts as sent when it is there
        write_atomically(f"{path}{signing.SUFFIX}", [memoryview(message.signature)])
    write_atomically(path, [memoryview(message.data)])
    return path


def read_round(folder: _Path) -> dict[str, Any]:
    """What the coordinator of a folder asks for."""
    found = _read_json(Path(folder) / _ROUND)
    kinds = {"version": int, "round": str, "request": str, "max_bytes": int, "opened": float}
    for key, kind in kinds.items():
        if not isinstance(found.get(key), kind):
            raise FileFormatError(f"{folder}: expected {key} in {_ROUND}, got {found.get(key)!r}")
    if found["version"] != VERSION:
        text = f"{folder}: expected messages of version {VERSION}"
        raise FileFormatError(f"{text}, got {found['version']}")
    return found


def receive(folder: _Path, key: _Path | None = None) -> bytes:
    """The fused posterior that the coordinator released, checked against its manifest."""
    path = Path(folder) / _MANIFEST
    manifest, asked = _read_json(path), read_round(folder)["round"]
    if manifest.get("round") != asked:
        got = f"one of round {manifest.get('round')!r}"
        raise FileFormatError(f"{path}: expected the manifest of round {asked!r}, got {got}")
    if key is not None:
        signature = _bytes(Path(f"{path}{signing.SUFFIX}"), _MAX_JSON)
        signing.signer(_bytes(path, _MAX_JSON), signature, {"coordinator": os.fspath(key)})
    size = manifest.get("bytes")
    if not isinstance(size, int):
        raise FileFormatError(f"{path}: expected a number of bytes, got {size!r}")
    data = _bytes(Path(folder) / _FUSED, size)
    if sha256(data) != manifest.get("sha256"):
        raise FileFormatError(f"{folder}: expected {_FUSED} as in {_MANIFEST}, got another")
    return data


class Coordinator:
    """The server of a round over a folder; it can stop at any time and be started again.

    Parameters
    ----------
    definition : Round
    folder : str or path
        The shared folder. ``store`` is the coordinator's own, by default a folder in it.
    key : str or path, optional
        Secret key with which the request and the manifest are signed.
    """

    def __init__(
        self, definition: Round, folder: _Path, store: _Path | None = None, key: _Path | None = None
    ) -> None:
        self.folder, self.key = Path(folder), key
        (self.folder / _INBOX).mkdir(parents=True, exist_ok=True)
        self.asked: dict[str, Any] = {}
        own = Path(store or self.folder / "store")
        self._opened = own / _ROUND  # the coordinator's own copy of its first request
        if self._opened.exists():
            both = [_read_json(own / _ROUND), read_round(folder)]
            names, signed = ([one.get(key) for one in both] for key in ("round", "signed"))
            if names[0] != names[1] or signed[0] != signed[1]:
                text = f"{folder}: expected the round {names[0]!r} that was opened here"
                raise KLFusionError(f"{text}, got {names[1]!r} in {_ROUND}: somebody changed it")
        if (self.folder / _ROUND).exists():
            self.asked = read_round(folder)
            if self.asked.get("signed") and definition.keys is None:
                text = f"{folder}: expected the public keys of silos, for messages are signed"
                raise KLFusionError(f"{text} in this round, got none")
            if self.asked["round"] != definition.name:
                text = f"{folder}: expected a folder of round {definition.name!r}"
                raise KLFusionError(f"{text}, got one of {self.asked['round']!r}: take a new one")
        self.server = Server(definition, store or self.folder / "store", senders="unknown")
        self._seen: dict[Path, Any] = {}  # times and sizes of files as last checked
        if not self.asked:
            self._ask(FIT)

    @property
    def released(self) -> bool:
        """Whether the result is in the folder."""
        return (self.folder / _MANIFEST).exists()

    @property
    def waiting(self) -> int:
        """Number of silos that are waited for."""
        server = self.server
        if self.asked["request"] == FIT:
            return server.round.expected - len(server.posteriors[FIT])
        return len(server.answering(SECOND))

    def step(self) -> bool:
        """Look at the inbox once; returns whether the round has ended."""
        server, definition = self.server, self.server.round
        if self.released:
            return True
        if self.asked["request"] == SECOND and server.fusion is None:  # started again
            server.fuse()
        self._collect()
        over = time.time() >= self.asked["opened"] + definition.timeout
        write_status(self.folder, server, self.asked, released=False)
        if self.waiting > 0 and not over:
            return False
        server.fuse(self.asked["request"])
        if self.asked["request"] == FIT and server.answering(SECOND):
            self._ask(SECOND)
            return False
        self._release()
        return True

    def run(self, every: float = 2.0, say: Callable[[str], object] = lambda _: None) -> Server:
        """Look at the inbox every so many seconds until the round has ended."""
        said = ""
        while not self.step():
            text = f"{self.asked['request']}: waiting for {self.waiting} more"
            if text != said:
                say(text)
                said = text
            time.sleep(every)
        return self.server

    def _collect(self) -> None:
        """Check files that are new, or that changed since they were last checked."""
        request, limit = self.asked["request"], self.server.round.max_bytes
        pattern = "*.safetensors" if request == FIT else f"*-{request}-*.safetensors"
        for path in sorted((self.folder / _INBOX).glob(pattern), key=_mark):
            signature = Path(f"{path}{signing.SUFFIX}")
            mark = (_mark(path), _mark(signature))
            if self._seen.get(path) == mark:
                continue
            self._seen[path] = mark
            try:
                signed = _bytes(signature, _MAX_JSON) if mark[1][2] else b""
                reply = Reply(_bytes(path, limit), signed)
            except KLFusionError as error:
                reply = Reply(error=one_line(str(error)))
            self.server.receive(f"file {path.name}", reply, request)

    def _ask(self, request: str) -> None:
        """Publish a request; what it refers to is there before it."""
        definition = self.server.round
        if request == SECOND:
            write_atomically(self.folder / "request.safetensors", [memoryview(self.server.fused())])
        self.asked = {"version": VERSION, "round": definition.name, "request": request,
                      "max_bytes": definition.max_bytes, "opened": time.time(),
                      "signed": definition.keys is not None}  # fmt: skip
        self._write_json(_ROUND, self.asked)
        if not self._opened.exists():
            self._opened.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(self._opened, [memoryview(json.dumps(self.asked).encode())])

    def _release(self) -> None:
        """Write the fused posterior, then the manifest, which marks the round as ended."""
        server, data = self.server, self.server.fused()
        write_atomically(self.folder / _FUSED, [memoryview(data)])
        write_status(self.folder, server, self.asked, released=True)
        manifest = {
            "version": VERSION, "round": server.round.name, "sha256": sha256(data),
            "bytes": len(data), "left_out": server.left_out, "messages": server.journal(),
        }  # fmt: skip
        self._write_json(_MANIFEST, manifest)

    def _write_json(self, name: str, content: dict[str, Any]) -> None:
        path, data = self.folder / name, json.dumps(content, indent=1).encode()
        if self.key is not None:
            signature = signing.sign(data, self.key, f"klfusion {name}")
            write_atomically(f"{path}{signing.SUFFIX}", [memoryview(signature)])
        write_atomically(path, [memoryview(data)])


def _mark(path: Path) -> tuple[int, int, str]:
    """Time, size and name of a file; zeros and no name if there is none."""
    try:
        about = path.lstat()
    except OSError:
        return 0, 0, ""
    return about.st_mtime_ns, about.st_size, path.name


def _bytes(path: Path, limit: int) -> bytes:
    """A regular file of bounded size; a link is not followed, a pipe does not block."""
    careful = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
    try:
        with open(path, "rb", opener=lambda p, flags: os.open(p, flags | careful)) as file:
            about = os.fstat(file.fileno())
            if not stat.S_ISREG(about.st_mode) or about.st_size > limit:
                text = f"{path.name}: expected a file of at most {limit} bytes"
                raise FileFormatError(f"{text}, got {about.st_size} bytes or no file")
            return file.read(limit + 1)
    except OSError as error:
        raise FileFormatError(f"{path}: cannot be read ({error.strerror})") from error


def _read_json(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(_bytes(path, _MAX_JSON))
    except ValueError as error:
        if isinstance(error, KLFusionError):
            raise
        raise FileFormatError(f"{path}: expected JSON ({error})") from error
    if not isinstance(found, dict):
        raise FileFormatError(f"{path}: expected a JSON object, got {type(found).__name__}")
    return found
