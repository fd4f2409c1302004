"""Posteriors as Flower messages: bytes of klfusion files, with limits of size and time."""

import json
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import httpx
from flwr.app import Array, ArrayRecord, Error, Message, RecordDict
from flwr.serverapp import Grid
from flwr.superlink.grid import HttpGrid

from klfusion._utils.text import printable
from klfusion.errors import FileFormatError, KLFusionError
from klfusion.io.storage import dumps, loads
from klfusion.posteriors.posterior import Posterior

FIT, REFIT, USE = "train", "train.refit", "evaluate"  # message types of Flower, one per request
KEY = "posterior"  # name of the record in a message and of the array in the record
SERIALIZATION = "klfusion.safetensors"
HANDLED = "federation"  # key in a posterior's provenance: which requests its silo handles
MAX_BYTES = 64 * 2**20
_HEADER_BYTES = 2**20  # allowance per message for names, ids and types around the array
_STALL_SECONDS = 30.0  # an upload without progress for this long is abandoned
_MAX_REASON = 500  # characters kept of an untrusted error text


def pack(posterior: Posterior) -> ArrayRecord:
    """Pack a posterior into a record: the bytes that `klfusion.save` writes."""
    data = dumps(posterior)
    return ArrayRecord({KEY: Array("uint8", (len(data),), SERIALIZATION, data)})


def unpack(content: RecordDict, source: str, max_bytes: int) -> Posterior:
    """Read a posterior from a message, with all the checks of `klfusion.load`."""
    record = content.get(KEY)
    if not isinstance(record, ArrayRecord) or list(record) != [KEY]:
        raise FileFormatError(
            f"{source}: expected a message with one record {KEY!r} of one array {KEY!r}, "
            f"got {one_line(str(list(content)))}"
        )
    if record[KEY].stype != SERIALIZATION:
        raise FileFormatError(
            f"{source}: expected an array written as {SERIALIZATION!r}, "
            f"got '{one_line(record[KEY].stype)}'"
        )
    posterior = loads(record[KEY].data, source=source, max_bytes=max_bytes)
    if not isinstance(posterior, Posterior):
        raise FileFormatError(f"{source}: expected the posterior of one silo, got a fusion")
    return posterior


def failure(request: Message, reason: str) -> Message:
    """Make an error reply to a request without a usable reply."""
    return Message(Error(code=0, reason=one_line(reason)), reply_to=request)


def one_line(text: str) -> str:
    """One printable line of bounded length, for names and reasons from untrusted senders."""
    return printable(text if len(text) <= _MAX_REASON else f"{text[:_MAX_REASON]}...")


_Requests = Callable[[], Iterable[Message]]


def exchange(
    grid: Grid, requests: _Requests, *, timeout: float, max_bytes: int, wait_for: int = 0
) -> Iterator[Message]:
    """Send one request per node and yield each reply as it arrives.

    Nodes which join late are included: ``requests()`` is called repeatedly. The exchange ends when
    ``wait_for`` requests were sent and all have replies, or after ``timeout`` seconds. A failure is
    a reply with an error. No node can reply in the name of another: metadata come from the request.
    """
    start, over = time.monotonic(), False
    requested: set[int] = set()
    pending: dict[str, Message] = {}
    while not over:
        elapsed = time.monotonic() - start
        over = elapsed >= timeout  # one last pull of replies
        new = [] if over else [r for r in requests() if r.metadata.dst_node_id not in requested]
        requested.update(request.metadata.dst_node_id for request in new)
        ids = list(grid.push_messages(new)) if new else []
        for request, message_id in zip(new, ids, strict=True):
            if message_id:
                pending[message_id] = request
            else:
                yield failure(request, "the SuperLink did not forward the request")
        for message_id, request in list(pending.items()):
            reply = _pull_reply(grid, message_id, request, max_bytes)
            if reply is not None:
                del pending[message_id]
                yield reply
        over = over or (not pending and len(requested) >= wait_for)
        if not over:
            time.sleep(min(1.0, 0.01 + elapsed / 10))
    for request in pending.values():
        yield failure(request, f"no reply within {timeout:g} s")


def _pull_reply(
    grid: Grid, message_id: str, request: Message, max_bytes: int, stall: float = _STALL_SECONDS
) -> Message | None:
    """Pull the reply to one request; one at a time, so that a bad reply affects no other."""
    try:
        with _bounded(grid, max_bytes, stall):
            found = list(grid.pull_messages([message_id]))
    except KLFusionError as error:
        return failure(request, str(error))
    except httpx.TransportError:  # the SuperLink is gone: not an error of a node
        raise
    except Exception as error:  # Flower may raise anything on a hostile reply
        return failure(request, f"a reply that Flower cannot read ({type(error).__name__})")
    if not found:
        return None
    if found[0].has_error():
        return failure(request, f"an error: {found[0].error.reason}")
    return Message(found[0].content, reply_to=request)


@contextmanager
def _bounded(grid: Grid, max_bytes: int, stall: float) -> Iterator[None]:
    """Limit what one pull reads to little more than ``max_bytes``, object by object."""
    if not isinstance(grid, HttpGrid):
        yield
        return
    # Flower has no public limit, hook or setting for the size of a reply. This is the only use of
    # a private name of Flower: the client whose public method `PullObject` downloads one object.
    client = grid._runtime_client
    client.PullObject = _BoundedPull(client.PullObject, max_bytes, stall)  # type: ignore[method-assign]
    try:
        yield
    finally:
        del client.PullObject


class _BoundedPull:
    """Flower's download of one object, stopped at a reply that is too large or too slow."""

    def __init__(self, pull: Callable[[Any], Any], max_bytes: int, stall: float) -> None:
        self._pull, self._max_bytes, self._stall = pull, max_bytes, stall
        self._read = 0
        self._kinds: set[bytes] = set()
        self._progress = time.monotonic()
        self._lock = threading.Lock()  # Flower downloads in two threads

    def __call__(self, request: Any) -> Any:
        response = self._pull(request)
        if response.object_content:
            with self._lock:
                self._progress = time.monotonic()
                self._check(response.object_content)
        elif time.monotonic() - self._progress > self._stall:
            raise FileFormatError(f"a reply whose upload stopped for {self._stall:g} s")
        return response

    def _check(self, content: bytes) -> None:
        self._read += len(content)
        if self._read > self._max_bytes + _HEADER_BYTES:
            text = f"expected at most {self._max_bytes} bytes, got more: raise max_bytes"
            raise FileFormatError(text)
        # Flower copies a chunk at every reference to it: few bytes could expand to many.
        kind = content[:64].partition(b" ")[0]
        if kind != b"ArrayChunk" and kind in self._kinds:
            raise FileFormatError(f"expected one {kind.decode()} in a message, got several")
        self._kinds.add(kind)
        if kind == b"Array":
            chunks = json.loads(content.partition(b"\x00")[2])["arraychunk_ids"]
            if len(set(chunks)) < len(chunks):
                raise FileFormatError("expected each part of an array once, got repetitions")
