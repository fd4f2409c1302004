"""A Flower grid in one process: apps reply at once, late, or never."""

from __future__ import annotations

import importlib.util
import inspect
import time
from itertools import count
from pathlib import Path

from flwr.app import Context, Error, Message, Metadata, RecordDict
from flwr.app.message import make_message
from flwr.proto.node_pb2 import NodeInfo
from flwr.serverapp import Grid
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects
from flwr.supercore.inflatable.inflatable_utils import inflate_object_from_contents
from flwr.supercore.task_identity import TaskIdentity


class Node:
    """A node with an app; it joins and replies with the given delays in seconds."""

    def __init__(self, app, name="", joins=0.0, answers=0.0, **config):
        self.app, self.name, self.joins, self.answers = app, name, joins, answers
        self.config = config
        self.asked = []


class LocalGrid(Grid):
    """Nodes by id. Messages pass through Flower's own encoding, as between machines."""

    def __init__(self, nodes):
        self.nodes = dict(enumerate(nodes, start=11))
        self._start = time.monotonic()
        self._sent = {}
        self._ids = count()
        TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = 1, 1, 1

    def set_run(self, run):
        raise NotImplementedError

    run = property(set_run)

    def create_message(self, *args, **kwargs):
        raise NotImplementedError

    def get_node_ids(self):
        elapsed = time.monotonic() - self._start
        return [i for i, node in self.nodes.items() if node.joins <= elapsed]

    def get_nodes(self):
        return [NodeInfo(node_id=i, name=self.nodes[i].name) for i in self.get_node_ids()]

    def push_messages(self, messages):
        ids = []
        for message in messages:
            node = self.nodes[message.metadata.dst_node_id]
            node.asked.append(message.metadata.message_type)
            ids.append(f"message-{next(self._ids)}")
            sent = encoded_and_decoded(with_id(message, ids[-1]))
            self._sent[ids[-1]] = (sent, time.monotonic() + node.answers)
        return ids

    def pull_messages(self, message_ids):
        due = [i for i in message_ids if self._sent[i][1] <= time.monotonic()]
        return [self._reply(self._sent[i][0]) for i in due]

    def send_and_receive(self, messages, *, timeout=None):
        raise NotImplementedError

    def _reply(self, message):
        node_id = message.metadata.dst_node_id
        node = self.nodes[node_id]
        config = {"name": node.name or f"silo-{node_id}"} | node.config
        context = Context(1, node_id, config, RecordDict(), {})
        try:
            return encoded_and_decoded(node.app(message, context))
        except Exception as error:  # as Flower's SuperNode does
            return Message(Error(2, f"{type(error)}:<'{error}'>"), reply_to=message)


def with_id(message, message_id):
    """The same message with an id, which the SuperLink gives."""
    known = {
        name: getattr(message.metadata, name) for name in inspect.signature(Metadata).parameters
    }
    return make_message(
        metadata=Metadata(**known | {"message_id": message_id}),
        content=message.content if message.has_content() else None,
        error=message.error if message.has_error() else None,
    )


def encoded_and_decoded(message):
    """The same message after Flower's encoding into objects and back."""
    contents = {key: obj.deflate() for key, obj in get_all_nested_objects(message).items()}
    again = inflate_object_from_contents(message.object_id, contents)
    return with_id(again, message.metadata.message_id)


def files(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def client_of(app: Path):
    """The module of an app's clients."""
    spec = importlib.util.spec_from_file_location(f"client_of_{app.name}", app / "client_app.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
