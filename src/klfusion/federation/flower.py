"""A round on Flower, by its public API: the apps of a site and of the server."""

import os
import time
from collections.abc import Callable, Iterator
from functools import partial

try:
    from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, RecordDict
    from flwr.clientapp import ClientApp
    from flwr.serverapp import Grid, ServerApp
except ImportError as error:
    from klfusion.errors import MissingDependencyError

    raise MissingDependencyError(
        f"klfusion.federation.flower needs {error.name}, which is not installed: "
        "pip install 'klfusion[flower]'"
    ) from error

from klfusion.errors import KLFusionError
from klfusion.federation.round import Reply, Round, Site
from klfusion.federation.server import Server

_KEY, _REQUEST = "klfusion", "klfusion.request"  # records of a message
_SPARE_SECONDS = 60.0  # a request expires so long after the round, never during it
_LONGEST_PAUSE = 1.0  # seconds between two looks for replies


def client_app(definition: Round) -> ClientApp:
    """The Flower app of a site; its name and configuration are those of the SuperNode.

    Examples
    --------
    >>> from klfusion.federation import Round
    >>> from klfusion.federation.flower import client_app, server_app
    >>> wines = Round(name="wines", fit=lambda site: site.config["model"])
    >>> client, server = client_app(wines), server_app(wines, "federation")
    """
    app = ClientApp()

    @app.train()
    def reply(message: Message, context: Context) -> Message:
        try:
            site = Site(str(context.node_config.get("name", "")), context.node_config)
            request = str(message.content[_REQUEST]["request"])
            found = definition.reply(site, request, _parts(message.content).get("data", b""))
        except KLFusionError as error:
            found = Reply(error=f"""{error}: flower-supernode --node-config 'name="a"'""")
        return Message(_content("reply", found.parts()), reply_to=message)

    return app


def server_app(definition: Round, store: str | os.PathLike[str] | None = None) -> ServerApp:
    """The Flower app of the server; the folder ``store`` is a setting of the run by default."""
    app = ServerApp()

    @app.main()
    def main(grid: Grid, context: Context) -> None:
        run(definition, grid, store or str(context.run_config["store"]))

    return app


def run(definition: Round, grid: Grid, store: str | os.PathLike[str]) -> Server:
    """Run a round to its end: collect posteriors, fuse them, send the result back.

    Nodes that join during the round are asked, too. A server that is restarted with the same
    folder asks only sites whose posteriors are missing.
    """
    server = Server(definition, store)
    server.run(partial(_exchange, grid, definition.timeout))
    return server


def _exchange(
    grid: Grid, timeout: float, request: str, data: bytes, wanted: Callable[[str], bool], n: int
) -> Iterator[tuple[str, Reply]]:
    """Send a request to wanted nodes, as they join, and yield each reply as it arrives.

    It ends when ``n`` requests were sent and all have replies, or after ``timeout`` seconds.
    """
    content = _content(request, Reply(data).parts())
    start, over = time.monotonic(), False
    pending: dict[str, str] = {}
    asked: set[int] = set()
    while not over:
        elapsed = time.monotonic() - start
        over = elapsed >= timeout  # one last look for replies
        for node, name in () if over else _nodes(grid, asked):
            if not wanted(name):
                continue
            asked.add(node)
            message = Message(content, node, "train", ttl=timeout + _SPARE_SECONDS)
            sent = next(iter(grid.push_messages([message])), None)
            if sent:
                pending[sent] = name
            else:
                yield name, Reply(error="the SuperLink did not forward the request")
        for sent, name in list(pending.items()):
            reply = _pull(grid, sent)
            if reply is not None:
                del pending[sent]
                yield name, reply
        over = over or (not pending and len(asked) >= n)
        if not over:
            time.sleep(min(_LONGEST_PAUSE, 0.01 + elapsed / 10))
    for name in pending.values():
        yield name, Reply(error=f"no reply within {timeout:g} s")


def _nodes(grid: Grid, asked: set[int]) -> list[tuple[int, str]]:
    """Other nodes with their names, if registered by ``flwr supernode register --name``."""
    names = {node.node_id: node.name for node in getattr(grid, "get_nodes", list)()}  # not in 1.34
    labels = {i: f" ({names[i]})" if names.get(i) else "" for i in {*grid.get_node_ids()} - asked}
    return [(node, f"node {node}{labels[node]}") for node in sorted(labels)]


def _pull(grid: Grid, sent: str) -> Reply | None:
    """The reply to one request; one at a time, so that a bad reply affects no other."""
    try:
        for message in grid.pull_messages([sent]):
            if message.has_error():
                return Reply(error=f"an error of Flower: {message.error.reason}")
            return Reply.of(_parts(message.content))
    except Exception as error:  # Flower may raise anything on a hostile reply
        grid.get_node_ids()  # raises if the SuperLink is gone, which is not an error of a node
        return Reply(error=f"a reply that Flower cannot read ({type(error).__name__})")
    return None


def _content(request: str, parts: dict[str, bytes]) -> RecordDict:
    arrays = {name: Array("uint8", (len(own),), _KEY, own) for name, own in parts.items()}
    return RecordDict({_KEY: ArrayRecord(arrays), _REQUEST: ConfigRecord({"request": request})})


def _parts(content: RecordDict) -> dict[str, bytes]:
    record = content.get(_KEY)
    return {name: record[name].data for name in record} if isinstance(record, ArrayRecord) else {}
