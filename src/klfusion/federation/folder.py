"""A round over a shared folder: sites add files to its inbox, a coordinator checks and fuses them.

``round.json`` says what is asked for, ``inbox/`` holds messages, ``manifest.json`` the result.
"""

import json
import logging
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote

from klfusion._utils.checks import check_number
from klfusion._utils.text import few
from klfusion.errors import FileFormatError, KLFusionError
from klfusion.federation import signing
from klfusion.federation.careful import MAX_JSON, bounded, mark_of, read_json
from klfusion.federation.round import FIT, SECOND, VERSION, Reply, Round, Site, one_line
from klfusion.federation.server import Server
from klfusion.federation.status import STATUS, write_status
from klfusion.federation.store import sha256
from klfusion.io.atomic import write_atomically
from klfusion.posteriors.posterior import Posterior

_ROUND, _MANIFEST, _FUSED, _INBOX = "round.json", "manifest.json", "fused.safetensors", "inbox"
_REQUEST = "request.safetensors"  # the fused posterior that a second request refers to
_PUBLISHED = (_REQUEST, _FUSED, f"{_ROUND}{signing.SUFFIX}", _ROUND,
              f"{_MANIFEST}{signing.SUFFIX}", _MANIFEST)  # fmt: skip
_HASH = 16  # hexadecimal digits of a message's hash that are in its name
_Path = str | os.PathLike[str]
_log = logging.getLogger("klfusion.federation")


def send(folder: _Path, posterior: Posterior, key: _Path | None = None) -> Path:
    """Add a posterior to the inbox; a file appears there whole, and none is ever changed.

    Equal messages have equal names, so that sending again after an interruption is safe. A message
    that cannot count is an error: the round has ended, or the name or the key is not of this round.
    """
    asked = read_round(folder)
    definition = Round(name=asked["round"], max_bytes=asked["max_bytes"])
    site = Site(posterior.name, {"key": key} if key else {})
    message = definition.message(site, posterior, asked["request"])
    path = Path(folder) / _INBOX / _name_of(posterior.name, asked["request"], sha256(message.data))
    if (Path(folder) / _MANIFEST).exists():
        if path.exists():
            return path  # sent before
        text = f"{folder}: expected a round that is open, got {asked['round']!r}, which has ended"
        raise KLFusionError(f"{text}: nothing was sent")
    _check_admitted(site.name, message, asked)
    if message.signature:  # before the message, which counts as sent when it is there
        write_atomically(f"{path}{signing.SUFFIX}", [memoryview(message.signature)])
    write_atomically(path, [memoryview(message.data)])
    return path


def others_of(sent: Path) -> list[Path]:
    """Other messages of the same silo to the same request: the first that can be used counts."""
    stem = sent.name.rpartition("-")[0]
    return sorted(set(sent.parent.glob(f"{stem}-{'?' * _HASH}.safetensors")) - {sent})


def _name_of(silo: str, request: str, digest: str) -> str:
    return f"{quote(silo, safe='')}-{request}-{digest[:_HASH]}.safetensors"


def _check_admitted(name: str, message: Reply, asked: dict[str, Any]) -> None:
    """Refuse at the site what the coordinator would refuse: an unknown name or another key."""
    silos, keys = asked.get("silos"), asked.get("keys")
    if isinstance(silos, list) and name not in silos:
        raise KLFusionError(f"site {name!r}: expected a name of this round, {few(silos)}")
    if isinstance(keys, dict):
        try:
            signing.signer(message.data, message.signature, {name: str(keys.get(name))})
        except KLFusionError as error:
            text = f"site {name!r}: expected the key whose public key the coordinator has"
            raise KLFusionError(f"{text} ({error}): nothing was sent") from error


def read_round(folder: _Path) -> dict[str, Any]:
    """What the coordinator of a folder asks for."""
    if not (Path(folder) / _ROUND).exists():
        raise FileFormatError(f"{folder}: expected a folder that a coordinator opened, got none")
    found = read_json(Path(folder) / _ROUND)
    kinds = {"version": int, "round": str, "request": str, "max_bytes": int, "opened": float}
    for key, kind in kinds.items():
        if not isinstance(found.get(key), kind):
            raise FileFormatError(f"{folder}: expected {key} in {_ROUND}, got {found.get(key)!r}")
    if found["version"] != VERSION:
        text = f"{folder}: expected messages of version {VERSION}"
        raise FileFormatError(f"{text}, got {found['version']}")
    return found


def second_request(folder: _Path) -> bytes:
    """The fused posterior of the first round, which the second request refers to."""
    asked = read_round(folder)
    if asked["request"] != SECOND:
        text = f"{folder}: expected a round with a second request, got {asked['round']!r}"
        raise KLFusionError(f"{text}, which waits for answers to the first")
    return bounded(Path(folder) / _REQUEST, asked["max_bytes"])


def receive(folder: _Path, key: _Path | None = None) -> bytes:
    """The fused posterior that the coordinator released, checked against its manifest."""
    path, asked = Path(folder) / _MANIFEST, read_round(folder)
    if not path.exists():
        text = f"{folder}: expected a round that has ended, got {asked['round']!r}"
        raise KLFusionError(f"{text}, which is open: its {STATUS} shows who is waited for")
    manifest = read_json(path)
    if manifest.get("round") != asked["round"]:
        got = f"one of round {manifest.get('round')!r}"
        text = f"{path}: expected the manifest of round {asked['round']!r}"
        raise FileFormatError(f"{text}, got {got}")
    if key is not None:
        signature = bounded(Path(f"{path}{signing.SUFFIX}"), MAX_JSON)
        signing.signer(bounded(path, MAX_JSON), signature, {"coordinator": os.fspath(key)})
    size = manifest.get("bytes")
    if not isinstance(size, int):
        raise FileFormatError(f"{path}: expected a number of bytes, got {size!r}")
    data = bounded(Path(folder) / _FUSED, size)
    if sha256(data) != manifest.get("sha256"):
        text = f"{folder}: expected {_FUSED} as in {_MANIFEST}, got another"
        raise FileFormatError(f"{text}: the coordinator restores it when it runs")
    return data


def is_signed(folder: _Path, name: str = _MANIFEST) -> bool:
    """Whether a file of the coordinator has a signature beside it."""
    return (Path(folder) / f"{name}{signing.SUFFIX}").exists()


def published(folder: _Path, store: _Path | None) -> Path:
    """The coordinator's own copies of what it wrote to the shared folder."""
    return Path(store or Path(folder) / "store") / "published"


def opened(folder: _Path, store: _Path | None) -> dict[str, Any] | None:
    """What a coordinator that opened a round here asked for, by its own copy if there is one."""
    for place in (published(folder, store), Path(folder)):
        if (place / _ROUND).exists():
            return read_round(place)
    return None


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
        self._own = published(folder, store)
        self._seen: dict[Path, Any] = {}  # times and sizes of files as last checked
        self.asked: dict[str, Any] = {}
        before = opened(folder, store)
        if before is not None and before["round"] != definition.name:
            text = f"{folder}: expected a folder of round {definition.name!r}"
            raise KLFusionError(f"{text}, got one of {before['round']!r}: take a new one")
        self.server = Server(definition, self._own.parent, senders="unknown")
        self._own.mkdir(exist_ok=True)
        if before is None:
            self._ask(FIT)
        else:
            self._continue(definition)

    def _continue(self, definition: Round) -> None:
        """Go on with a round that was opened here; who may take part can change."""
        if not (self._own / _ROUND).exists():  # the store was lost
            for name in _PUBLISHED:
                if (self.folder / name).exists():
                    data = bounded(self.folder / name, definition.max_bytes)
                    write_atomically(self._own / name, [memoryview(data)])
        self.asked = read_round(self._own)
        if self.asked.get("keys") is not None and definition.keys is None:
            text = f"{self.folder}: expected the public keys of silos, for messages are signed"
            raise KLFusionError(f"{text} in this round, got none")
        if is_signed(self._own, _ROUND) and self.key is None and not self.released:
            text = f"{self.folder}: expected the secret key that signed the request of this round"
            raise KLFusionError(f"{text}, got none: sites would not accept the result")
        if self.asked | _admitted(definition) != self.asked and not self.released:
            self.asked |= _admitted(definition)
            self._write_json(_ROUND, self.asked)

    @property
    def released(self) -> bool:
        """Whether the round has ended."""
        return (self._own / _MANIFEST).exists()

    @property
    def waiting(self) -> int:
        """Number of silos that are waited for."""
        server = self.server
        if self.asked["request"] == FIT:
            return server.round.expected - len(server.usable(FIT))
        return len(server.answering(SECOND))

    def step(self) -> bool:
        """Look at the inbox once; returns whether the round has ended."""
        server, definition = self.server, self.server.round
        self._restore()
        if self.released:
            return True
        if self.asked["request"] == SECOND and server.fusion is None:  # started again
            server.fuse()
        self._collect()
        if server.unusable(self.asked["request"]):
            self._collect()  # what such a silo sent later may be usable
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
        check_number("every", every)
        said: list[str] = []
        while not self.step():
            now = [f"{self.asked['request']}: waiting for {self.waiting} more"]
            now += [f"set aside: {note}" for note in self.server.left_out]
            for text in now:
                if text not in said:
                    say(text)
            said = now
            time.sleep(every)
        return self.server

    def _collect(self) -> None:
        """Check files that are new, or changed, or of silos without a usable message."""
        request, limit = self.asked["request"], self.server.round.max_bytes
        again = tuple(
            _name_of(name, request, "").removesuffix(".safetensors")
            for name in self.server.unusable(request)
        )
        pattern = "*.safetensors" if request == FIT else f"*-{request}-*.safetensors"
        for path in sorted((self.folder / _INBOX).glob(pattern), key=mark_of):
            signature = Path(f"{path}{signing.SUFFIX}")
            mark = (mark_of(path), mark_of(signature))
            if self._seen.get(path) == mark and not path.name.startswith(again):
                continue
            self._seen[path] = mark
            try:
                signed = bounded(signature, MAX_JSON) if mark[1][2] else b""
                reply = Reply(bounded(path, limit), signed)
            except KLFusionError as error:
                reply = Reply(error=one_line(str(error)))
            self.server.receive(f"file {path.name}", reply, request)

    def _ask(self, request: str) -> None:
        """Publish a request; what it refers to is there before it."""
        definition = self.server.round
        if request == SECOND:
            self._publish(_REQUEST, self.server.fused())
        self.asked = {"version": VERSION, "round": definition.name, "request": request,
                      "max_bytes": definition.max_bytes, "opened": time.time(),
                      **_admitted(definition)}  # fmt: skip
        self._write_json(_ROUND, self.asked)

    def _release(self) -> None:
        """Write the fused posterior, then the manifest, which marks the round as ended."""
        server, data = self.server, self.server.fused()
        self._publish(_FUSED, data)
        write_status(self.folder, server, self.asked, released=True)
        manifest = {
            "version": VERSION, "round": server.round.name, "sha256": sha256(data),
            "bytes": len(data), "left_out": server.left_out, "messages": server.journal(),
        }  # fmt: skip
        self._write_json(_MANIFEST, manifest)

    def _write_json(self, name: str, content: dict[str, Any]) -> None:
        data = json.dumps(content, indent=1).encode()
        if self.key is not None:
            signature = signing.sign(data, self.key, f"klfusion {name}")
            self._publish(f"{name}{signing.SUFFIX}", signature)
        self._publish(name, data)

    def _publish(self, name: str, data: bytes) -> None:
        """Write a file to the shared folder, and a copy to the coordinator's own."""
        for folder in (self._own, self.folder):
            write_atomically(folder / name, [memoryview(data)], follow=False)

    def _restore(self) -> None:
        """Write again what somebody changed or deleted in the shared folder."""
        for path in [self.folder / name for name in _PUBLISHED if (self._own / name).exists()]:
            data = (self._own / path.name).read_bytes()
            try:
                same = bounded(path, len(data)) == data
            except FileFormatError:
                same = False
            if not same:
                _log.warning("%s is restored: somebody changed it", path)
                write_atomically(path, [memoryview(data)], follow=False)


def _admitted(definition: Round) -> dict[str, Any]:
    """Who may take part: names of silos and their public keys, None is everybody; how many."""
    keys = definition.keys
    public = None if keys is None else {n: signing.public_text(k) for n, k in keys.items()}
    silos = None if definition.silos is None else list(definition.silos)
    return {"silos": silos, "keys": public, "n_silos": definition.expected}
