"""Posteriors as Flower messages: the bytes of our files, asked for and received within limits."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import httpx
from flwr.app import Array, ArrayRecord, Error, Message, RecordDict
from flwr.serverapp import Grid
from flwr.superlink.grid.http_grid import HttpGrid

from klfusion._utils.text import printable
from klfusion.errors import FileFormatError, KLFusionError
from klfusion.io.storage import dumps, loads
from klfusion.posteriors.posterior import Posterior

FIT, REFIT, USE = "train", "train.refit", "evaluate"  # Flower's types of our questions
KEY = "posterior"  # of the record in a message, and of the array in the record
SERIALIZATION = "klfusion.safetensors"
FEDERATION = "federation"  # key in a posterior's provenance: what its silo can do
MAX_BYTES = 64 * 2**20
_HEADERS = 2**20  # bytes granted to what surrounds the array: names, ids, types
_STALLED = 30.0  # seconds after which an upload that stands still is given up
_MOST_WORDS = 500  # characters of a reason that comes from outside


# Encoding ---------------------------------------------------------------------------------------


def pack(posterior: Posterior) -> ArrayRecord:
    """Make the record that carries a posterior: the bytes `klfusion.save` would write."""
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


def failure(question: Message, reason: str) -> Message:
    """Make the answer of a node that gave none we can use."""
    return Message(Error(code=0, reason=one_line(reason)), reply_to=question)


def one_line(text: str) -> str:
    """One line of bounded length: names and reasons come from outside."""
    return printable(text if len(text) <= _MOST_WORDS else f"{text[:_MOST_WORDS]}...")


# Asking -----------------------------------------------------------------------------------------


def exchange(
    grid: Grid,
    questions: Callable[[], Iterable[Message]],
    *,
    timeout: float,
    max_bytes: int,
    wait_for: int = 0,
) -> Iterator[Message]:
    """Ask nodes, those that join late too, and give each one's answer as soon as it is there.

    ``questions()`` holds one message for every node that should be asked by now; a node is asked
    once. Ends when all have answered and at least ``wait_for`` were asked, or after ``timeout``
    seconds. What went wrong with a node is an answer with an error. Metadata of answers are made
    from the questions: nobody answers for another node.
    """
    start = time.monotonic()
    asked: set[int] = set()
    open_questions: dict[str, Message] = {}
    over = False
    while not over:
        elapsed = time.monotonic() - start
        over = elapsed >= timeout  # one last look at what has come, then the end
        new = [] if over else [q for q in questions() if q.metadata.dst_node_id not in asked]
        asked.update(question.metadata.dst_node_id for question in new)
        ids = list(grid.push_messages(new)) if new else []
        for question, message_id in zip(new, ids, strict=True):
            if message_id:
                open_questions[message_id] = question
            else:
                yield failure(question, "the SuperLink did not pass the question on")
        for message_id, question in list(open_questions.items()):
            answer = _answer(grid, message_id, question, max_bytes)
            if answer is not None:
                del open_questions[message_id]
                yield answer
        over = over or (not open_questions and len(asked) >= wait_for)
        if not over:
            time.sleep(min(1.0, 0.01 + elapsed / 10))
    for question in open_questions.values():
        yield failure(question, f"no answer within {timeout:g} s")


def _answer(
    grid: Grid, message_id: str, question: Message, max_bytes: int, stalled: float = _STALLED
) -> Message | None:
    """Look for the answer to one question; alone, so that a bad one takes no other with it."""
    try:
        with _bounded(grid, max_bytes, stalled):
            found = list(grid.pull_messages([message_id]))
    except KLFusionError as error:
        return failure(question, str(error))
    except httpx.TransportError:  # the SuperLink is gone, which is no node's fault
        raise
    except Exception as error:  # whatever Flower meets when it puts a hostile answer together
        return failure(question, f"an answer that Flower cannot read ({type(error).__name__})")
    if not found:
        return None
    if found[0].has_error():
        return failure(question, f"an error: {found[0].error.reason}")
    return Message(found[0].content, reply_to=question)


@contextmanager
def _bounded(grid: Grid, max_bytes: int, stalled: float) -> Iterator[None]:
    """Within this, whatever a node sent, little more than ``max_bytes`` of it is read.

    Flower downloads an answer object by object, however many there are, and puts it together
    before anyone sees it. So the limit is set where the objects come in. Other grids than the one
    of a deployment hold the answers in memory already.
    """
    if not isinstance(grid, HttpGrid):
        yield
        return
    client = grid._runtime_client
    grid._client = _BoundedClient(client, max_bytes, stalled)  # type: ignore[assignment]
    try:
        yield
    finally:
        grid._client = client


class _BoundedClient:
    """Flower's client of the SuperLink, which stops at an answer that is too large or too slow."""

    def __init__(self, client: Any, max_bytes: int, stalled: float) -> None:
        self._client = client
        self._max_bytes = max_bytes
        self._stalled = stalled
        self._read = 0
        self._kinds: set[bytes] = set()
        self._progress = time.monotonic()
        self._lock = threading.Lock()  # Flower downloads in two threads

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    def PullObject(self, request: Any) -> Any:  # noqa: N802 (Flower's name)
        response = self._client.PullObject(request)
        if response.object_content:
            with self._lock:
                self._progress = time.monotonic()
                self._check(response.object_content)
        elif time.monotonic() - self._progress > self._stalled:
            raise FileFormatError(f"an answer that stood still for {self._stalled:g} s halfway")
        return response

    def _check(self, content: bytes) -> None:
        self._read += len(content)
        if self._read > self._max_bytes + _HEADERS:
            raise FileFormatError(
                f"expected at most {self._max_bytes} bytes, got more: raise max_bytes"
            )
        # Flower copies a chunk wherever it is named, so that few bytes could name many.
        kind = content[:64].partition(b" ")[0]
        if kind != b"ArrayChunk" and kind in self._kinds:
            raise FileFormatError(f"expected one {kind.decode()} in a message, got several")
        self._kinds.add(kind)
        if kind == b"Array":
            chunks = json.loads(content.partition(b"\x00")[2])["arraychunk_ids"]
            if len(set(chunks)) < len(chunks):
                raise FileFormatError("expected each part of an array once, got repetitions")
