"""What a hostile answer may cost: Flower's own client, in front of a SuperLink that is made up."""

from __future__ import annotations

import json
import os
from types import SimpleNamespace

import pytest

from klfusion.io.storage import dumps
from tests.helpers.silos import rate_silos

pytest.importorskip("flwr")

from flwr.app import Array, ArrayRecord, ConfigRecord, Message, RecordDict
from flwr.common.serde import message_to_proto
from flwr.proto.message_pb2 import ObjectTree, PullObjectResponse
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects, get_object_tree
from flwr.supercore.run import Run
from flwr.superlink.grid.http_grid import HttpGrid

from klfusion.federation import _flower_messages as messages
from tests.helpers.flower_grid import LocalGrid

LIMIT = 100_000
SILO = rate_silos(n_silos=1)[0][0]


class SuperLink:
    """Has one answer, and counts what is taken of it."""

    def __init__(self, content, change=lambda kind, data: data):
        self.answer = Message(content, reply_to=QUESTION)
        self.answer.metadata.__dict__["_message_id"] = self.answer.object_id
        self.objects = {
            key: change(type(obj).__name__, obj.deflate())
            for key, obj in get_all_nested_objects(self.answer).items()
        }
        self.taken = 0

    def PullMessages(self, request):  # noqa: N802
        empty = Message(RecordDict(), reply_to=QUESTION)
        empty.__dict__["_metadata"] = self.answer.metadata
        tree = ObjectTree()
        tree.CopyFrom(get_object_tree(self.answer))
        return SimpleNamespace(messages_list=[message_to_proto(empty)], message_object_trees=[tree])

    def PullObject(self, request):  # noqa: N802
        data = self.objects[request.object_id]
        self.taken += len(data)
        return PullObjectResponse(
            object_found=True, object_available=data != b"", object_content=data
        )

    def ConfirmMessageReceived(self, request):  # noqa: N802
        pass


LocalGrid([])  # gives the process the identity that messages are made with
QUESTION = Message(RecordDict(), 11, "train")


def answer(link, **limits):
    grid = HttpGrid(token="none", insecure=True)
    grid._client = link
    grid._run = Run.create_empty(1)
    found = messages._answer(grid, "question", QUESTION, LIMIT, **limits)
    assert grid._client is link
    return found


def record(data):
    return ArrayRecord({"posterior": Array("uint8", (len(data),), "klfusion.safetensors", data)})


def test_a_good_answer():
    found = answer(SuperLink(RecordDict({"posterior": messages.pack(SILO)})))
    posterior = messages.unpack(found.content, "message", LIMIT)
    assert dumps(posterior) == dumps(SILO)
    assert found.metadata.src_node_id == 11


def test_a_large_one_is_not_read_to_its_end(monkeypatch):
    monkeypatch.setattr("flwr.app.message.array.FLWR_PRIVATE_MAX_ARRAY_CHUNK_SIZE", 50_000)
    link = SuperLink(RecordDict({"posterior": record(os.urandom(100 * LIMIT))}))
    assert answer(link).error.reason == "expected at most 100000 bytes, got more: raise max_bytes"
    assert link.taken < LIMIT + 2**20 + 200_000


def test_few_bytes_that_name_one_part_many_times():
    def repeat(kind, data):
        if kind != "Array":
            return data
        head, _, body = data.partition(b"\x00")
        body = json.dumps(json.loads(body) | {"arraychunk_ids": [0] * 10**5}).encode()
        return b"Array %s %d\x00%s" % (head.split(b" ")[1], len(body), body)

    link = SuperLink(RecordDict({"posterior": record(b"x" * 50_000)}), repeat)
    assert "expected each part of an array once" in answer(link).error.reason


def test_many_arrays_of_one_part():
    arrays = {f"{i}": Array("uint8", (i,), "klfusion.safetensors", b"x" * 50_000) for i in range(9)}
    link = SuperLink(RecordDict({"posterior": ArrayRecord(arrays)}))
    assert answer(link).error.reason == "expected one Array in a message, got several"


def test_an_upload_that_stands_still():
    link = SuperLink(
        RecordDict({"posterior": messages.pack(SILO)}),
        lambda kind, data: b"" if kind == "ArrayChunk" else data,
    )
    assert answer(link, stalled=0.0).error.reason == "an answer that stood still for 0 s halfway"


@pytest.mark.parametrize("kind", ["Message", "RecordDict", "ConfigRecord"])
def test_what_flower_cannot_read(kind):
    content = RecordDict({"posterior": ConfigRecord({"a": b"1"})})
    link = SuperLink(
        content, lambda k, d: d.partition(b"\x00")[0] + b"\x00\xff\xfe" if k == kind else d
    )
    assert answer(link).error.reason.startswith("an answer that Flower cannot read")
