"""Limits on hostile replies: Flower's own grid with a simulated SuperLink."""

from __future__ import annotations

import json
import os
from types import SimpleNamespace

import pytest

from klfusion.io.storage import dumps
from tests.helpers.silos import rate_silos

pytest.importorskip("flwr")

from flwr.app import Array, ArrayRecord, ConfigRecord, Message, RecordDict
from flwr.app.message import remove_content_from_message
from flwr.common.serde import message_to_proto
from flwr.proto.message_pb2 import ObjectTree, PullObjectResponse
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects, get_object_tree
from flwr.supercore.run import Run
from flwr.superlink.grid import HttpGrid

from klfusion.federation import _flower_messages as messages
from tests.helpers.flower_grid import LocalGrid, with_id

LIMIT = 100_000
SILO = rate_silos(n_silos=1)[0][0]


class SuperLink:
    """Holds one reply, and counts the bytes read of it."""

    def __init__(self, content, change=lambda kind, data: data):
        reply = Message(content, reply_to=REQUEST)
        self.reply = with_id(reply, reply.object_id)
        self.objects = {
            key: change(type(obj).__name__, obj.deflate())
            for key, obj in get_all_nested_objects(self.reply).items()
        }
        self.n_read = 0

    def PullMessages(self, request):  # noqa: N802
        empty = message_to_proto(remove_content_from_message(self.reply))
        tree = ObjectTree()
        tree.CopyFrom(get_object_tree(self.reply))
        return SimpleNamespace(messages_list=[empty], message_object_trees=[tree])

    def PullObject(self, request):  # noqa: N802
        data = self.objects[request.object_id]
        self.n_read += len(data)
        return PullObjectResponse(
            object_found=True, object_available=data != b"", object_content=data
        )

    def ConfirmMessageReceived(self, request):  # noqa: N802
        pass


LocalGrid([])  # sets the identity of the process, which messages need
REQUEST = Message(RecordDict(), 11, "train")


@pytest.fixture
def reply_of(monkeypatch):
    """The reply that is pulled from a SuperLink."""

    def pull(link, **limits):
        module = "flwr.superlink.grid.http_grid.RuntimeHttpClient"
        monkeypatch.setattr(f"{module}.from_server_address", lambda **_: link)
        grid = HttpGrid(token="none", insecure=True)
        grid.set_run(Run.create_empty(1))
        found = messages._pull_reply(grid, "request", REQUEST, LIMIT, **limits)
        assert "PullObject" not in vars(link)  # the limit is removed after the pull
        return found

    return pull


def record(data):
    return ArrayRecord({"posterior": Array("uint8", (len(data),), "klfusion.safetensors", data)})


def test_a_good_reply(reply_of):
    found = reply_of(SuperLink(RecordDict({"posterior": messages.pack(SILO)})))
    posterior = messages.unpack(found.content, "message", LIMIT)
    assert dumps(posterior) == dumps(SILO)
    assert found.metadata.src_node_id == 11


def test_a_large_reply_is_not_read_to_its_end(monkeypatch, reply_of):
    monkeypatch.setattr("flwr.app.message.array.FLWR_PRIVATE_MAX_ARRAY_CHUNK_SIZE", 50_000)
    link = SuperLink(RecordDict({"posterior": record(os.urandom(100 * LIMIT))}))
    assert reply_of(link).error.reason == "expected at most 100000 bytes, got more: raise max_bytes"
    assert link.n_read < LIMIT + 2**20 + 200_000


def test_few_bytes_that_refer_to_one_part_many_times(reply_of):
    def repeat(kind, data):
        if kind != "Array":
            return data
        head, _, body = data.partition(b"\x00")
        body = json.dumps(json.loads(body) | {"arraychunk_ids": [0] * 10**5}).encode()
        return b"Array %s %d\x00%s" % (head.split(b" ")[1], len(body), body)

    link = SuperLink(RecordDict({"posterior": record(b"x" * 50_000)}), repeat)
    assert "expected each part of an array once" in reply_of(link).error.reason


def test_many_arrays_of_one_part(reply_of):
    arrays = {f"{i}": Array("uint8", (i,), "klfusion.safetensors", b"x" * 50_000) for i in range(9)}
    link = SuperLink(RecordDict({"posterior": ArrayRecord(arrays)}))
    assert reply_of(link).error.reason == "expected one Array in a message, got several"


def test_an_upload_that_stops(reply_of):
    link = SuperLink(
        RecordDict({"posterior": messages.pack(SILO)}),
        lambda kind, data: b"" if kind == "ArrayChunk" else data,
    )
    assert reply_of(link, stall=0.0).error.reason == "a reply whose upload stopped for 0 s"


@pytest.mark.parametrize("kind", ["Message", "RecordDict", "ConfigRecord"])
def test_a_reply_that_flower_cannot_read(kind, reply_of):
    content = RecordDict({"posterior": ConfigRecord({"a": b"1"})})
    link = SuperLink(
        content, lambda k, d: d.partition(b"\x00")[0] + b"\x00\xff\xfe" if k == kind else d
    )
    assert reply_of(link).error.reason.startswith("a reply that Flower cannot read")
