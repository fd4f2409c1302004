"""One-shot federation on Flower: each silo sends one posterior, and the server fuses them."""

import logging
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

try:
    from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
    from flwr.serverapp import Grid
    from flwr.serverapp.strategy import Result, Strategy
except ImportError as error:
    from klfusion.errors import MissingDependencyError

    raise MissingDependencyError(
        f"klfusion.federation.flower needs {error.name}, which is not installed: "
        "pip install 'klfusion[flower]'"
    ) from error


from klfusion._fuse import fuse
from klfusion.errors import IncompatibleSilosError, KLFusionError
from klfusion.federation import _flower_messages as messages
from klfusion.federation._flower_client import fit_and_send
from klfusion.federation.compatible import check_same, compatible
from klfusion.fusion.result import Fusion
from klfusion.io.storage import load, save
from klfusion.posteriors.posterior import Posterior

_FILES = {1: "silo-{}.safetensors", 2: "refitted-{}.safetensors"}  # per round, by node id
_log = logging.getLogger("flwr.klfusion")

__all__ = ["OneShotFusion", "fit_and_send"]


class OneShotFusion(Strategy):
    """A Flower strategy that requests one posterior per silo and fuses them.

    Parameters
    ----------
    store : str or path
        Folder for the received posteriors, ``global.safetensors`` and ``report.html``. A server
        that is restarted with it sends requests only to silos whose posterior is missing.
    min_silos : int
        Fewer usable posteriors are an error. It lists the silos left out, with reasons.
    n_silos : int, optional
        Number of silos to wait for; default ``min_silos``.
    timeout : float
        Seconds for each of: the first round, the second round, sending the result back.
    refine : bool
        Send the fused posterior to silos with a ``refit``, and fuse their new posteriors, too.
    max_bytes : int
        Largest accepted message; default 64 MiB. Reading stops at this size.
    **options
        Arguments of `klfusion.fuse`.

    Attributes
    ----------
    fusion : Fusion
        The result, after `start`.
    left_out : list of str
        Silos and nodes left out, with reasons.

    Examples
    --------
    >>> from flwr.serverapp import ServerApp
    >>> from klfusion.federation.flower import OneShotFusion
    >>> app = ServerApp()  # the serverapp in [tool.flwr.app.components]
    >>> @app.main()
    ... def main(grid, context):
    ...     OneShotFusion("federation", min_silos=2, n_silos=3).start(grid)
    """

    def __init__(
        self,
        store: str | os.PathLike[str],
        *,
        min_silos: int = 2,
        n_silos: int | None = None,
        timeout: float = 600.0,
        refine: bool = False,
        max_bytes: int = messages.MAX_BYTES,
        **options: Any,
    ) -> None:
        self.store, self.min_silos = Path(store), min_silos
        self.n_silos = min_silos if n_silos is None else n_silos
        self.timeout, self.refine, self.max_bytes = timeout, refine, max_bytes
        self.options = options
        self.fusion: Fusion | None = None
        self.left_out: list[str] = []
        if not 1 <= min_silos <= self.n_silos or timeout <= 0:
            raise KLFusionError(
                "expected 1 <= min_silos <= n_silos and timeout > 0, got "
                f"min_silos={min_silos}, n_silos={self.n_silos}, timeout={timeout}"
            )
        self.store.mkdir(parents=True, exist_ok=True)
        self._members: set[int] = set()  # nodes whose posteriors were fused
        self._node_names: dict[int, str] = {}
        # By round and node, beginning with what the folder holds.
        self._posteriors: dict[int, dict[int, Posterior]] = {number: {} for number in _FILES}
        self._bound: dict[str, int] = {}  # the node that first used each name
        for number in _FILES:
            self._read_store(number)
        self._known_names = set(self._bound)

    def start(self, grid: Grid) -> Result:  # type: ignore[override]
        """Run the federation; it needs no initial arrays and no configuration per round."""
        self.summary()
        result, config = Result(), ConfigRecord()

        def ask(configure: Any, number: int, wait_for: int = 0) -> Iterable[Message]:
            return messages.exchange(
                grid, lambda: configure(number, result.arrays, config, grid),
                timeout=self.timeout, max_bytes=self.max_bytes, wait_for=wait_for,
            )  # fmt: skip

        missing = self.n_silos - len(self._posteriors[1])
        replies = ask(self.configure_train, 1, missing) if missing > 0 else ()
        result.arrays, result.train_metrics_clientapp[1] = self.aggregate_train(1, replies)
        if self.refine:
            replies = ask(self.configure_train, 2)
            result.arrays, result.train_metrics_clientapp[2] = self.aggregate_train(2, replies)
        number = 2 if self.refine else 1
        replies = ask(self.configure_evaluate, number)
        result.evaluate_metrics_clientapp[number] = self.aggregate_evaluate(number, replies)
        return result

    def summary(self) -> None:
        """Log the settings."""
        _log.info(
            "one-shot fusion of %s silos, at least %s, within %g s; %s holds %s already",
            self.n_silos, self.min_silos, self.timeout, self.store, len(self._posteriors[1]),
        )  # fmt: skip

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> list[Message]:
        """Requests to every node whose posterior of this round is missing."""
        nodes = {node.node_id: node.name for node in grid.get_nodes()}
        self._node_names |= nodes
        connected = set(nodes) - set(self._posteriors[server_round])
        if server_round == 1:
            return self._requests(connected, messages.FIT, RecordDict())
        content = RecordDict({messages.KEY: arrays})
        return self._requests(connected & self._nodes_that("refits"), messages.REFIT, content)

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord, MetricRecord]:
        """Check and store each posterior as it arrives, then fuse them in order of name."""
        for reply in replies:
            self._receive(server_round, reply)
        posteriors = dict(self._posteriors[1])
        if server_round == 2:
            posteriors |= self._posteriors[2]
        fusion = self._fused(posteriors)
        if self.left_out:
            left_out = {"left_out": list(self.left_out)}
            fusion = replace(fusion, provenance={**fusion.provenance, **left_out})
        save(self.store / "global.safetensors", fusion)
        fusion.report(str(self.store / "report.html"))
        self.fusion = fusion
        _log.info("%s, written to %s", fusion, self.store)
        metrics = MetricRecord({"n_silos": fusion.n_silos, "n_components": fusion.n_components})
        return messages.pack(fusion.posterior), metrics

    def _fused(self, posteriors: dict[int, Posterior]) -> Fusion:
        """Fuse what can be fused; every other silo is set aside with its reason."""
        refused = self._without_weight(posteriors)
        kept, others = compatible({n: p for n, p in posteriors.items() if n not in refused})
        refused |= others
        while True:
            for node, reason in refused.items():
                self._leave_out(node, reason)
            if len(kept) < self.min_silos:
                raise KLFusionError(
                    f"expected posteriors of at least {self.min_silos} silos within "
                    f"{self.timeout:g} s, got {len(kept)}; left out: "
                    f"{'; '.join(self.left_out) or 'no other node'}"
                )
            try:
                fusion = fuse(kept, **self._options_for(kept))
            except IncompatibleSilosError as error:
                if error.silo is None:
                    raise
                node = next(n for n, p in posteriors.items() if p.name == error.silo)
                refused = {**refused, node: str(error)}
                kept = [p for p in kept if p.name != error.silo]
            else:
                self._members = set(posteriors) - set(refused)
                return fusion

    def _without_weight(self, posteriors: Mapping[int, Posterior]) -> dict[int, str]:
        """Nodes whose silos a mapping of weights does not name."""
        weights = self.options.get("weights")
        if not isinstance(weights, Mapping):
            return {}
        unexpected = {n: p for n, p in posteriors.items() if p.name not in weights}
        return {n: f"no weight is given for {p.name!r}" for n, p in unexpected.items()}

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> list[Message]:
        """Requests that carry the fused posterior to the silos that use it."""
        connected = set(grid.get_node_ids()) & self._nodes_that("uses")
        return self._requests(connected, messages.USE, RecordDict({messages.KEY: arrays}))

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> MetricRecord:
        """Count the silos that received it; failures are logged and change nothing."""
        received = 0
        for reply in replies:
            received += not reply.has_error()
            if reply.has_error():
                who = self._who(reply.metadata.src_node_id)
                _log.warning("%s did not use the fused posterior: %s", who, reply.error.reason)
        return MetricRecord({"n_received": received})

    def _requests(self, nodes: Iterable[int], kind: str, content: RecordDict) -> list[Message]:
        # A minute longer than the round, so that no request expires during it.
        return [Message(content, node, kind, ttl=self.timeout + 60.0) for node in sorted(nodes)]

    def _receive(self, server_round: int, reply: Message) -> None:
        node = reply.metadata.src_node_id
        if reply.has_error():
            self._leave_out(node, reply.error.reason or "an error without a reason", server_round)
            return
        try:
            posterior = messages.unpack(reply.content, "message", self.max_bytes)
            if server_round == 2:
                check_same(self._posteriors[1][node], posterior)
        except KLFusionError as error:
            self._leave_out(node, str(error), server_round)
            return
        first = self._bound.setdefault(posterior.name, node)
        if server_round == 1 and posterior.name in self._known_names:
            _log.info("%s is silo %r, which is in the store", self._who(node), posterior.name)
            return
        if server_round == 1 and first != node:
            self._leave_out(node, f"the name {posterior.name!r} belongs to node {first}")
            return
        save(self._file(server_round, node), posterior)
        self._posteriors[server_round][node] = posterior
        _log.info("received %s from node %s", posterior, node)

    def _leave_out(self, node: int, reason: str, server_round: int = 1) -> None:
        note = messages.one_line(f"{self._who(node)}: {reason}")
        if server_round == 2:
            note += " (round 2: first posterior used)"
        if note not in self.left_out:
            self.left_out.append(note)
            _log.warning("left out %s", note)

    def _who(self, node: int) -> str:
        if node in self._posteriors[1]:
            return f"silo {self._posteriors[1][node].name!r} (node {node})"
        name = self._node_names.get(node)  # of flwr supernode register --name
        return f"node {node} ({name})" if name else f"node {node}"

    def _nodes_that(self, do: str) -> set[int]:
        """Fused nodes whose silos handle a kind of request, ``"refits"`` or ``"uses"``."""
        sent = {n: self._posteriors[1][n].provenance for n in self._members}
        handled = {n: own.get(messages.HANDLED) for n, own in sent.items()}
        return {
            n for n, kinds in handled.items() if isinstance(kinds, dict) and kinds.get(do) is True
        }

    def _options_for(self, silos: Sequence[Posterior]) -> dict[str, Any]:
        """Arguments of `fuse`, without the weights of silos that were left out."""
        weights = self.options.get("weights")
        if not isinstance(weights, Mapping):
            return self.options
        names = {silo.name for silo in silos}
        return self.options | {"weights": {k: w for k, w in weights.items() if k in names}}

    def _file(self, server_round: int, node: int | str) -> Path:
        return self.store / _FILES[server_round].format(node)

    def _read_store(self, server_round: int) -> None:
        """Read what the folder holds; nodes whose files cannot be used are asked again."""
        for path in sorted(self.store.glob(self._file(server_round, "*").name)):
            node = int(path.stem.rpartition("-")[2])
            try:
                posterior = load(path, max_bytes=self.max_bytes)
                if not isinstance(posterior, Posterior):
                    raise KLFusionError(f"{path}: expected the posterior of a silo, got a fusion")
            except KLFusionError as error:
                _log.warning("%s will be asked again: %s", self._who(node), error)
                continue
            if server_round == 1 and self._bound.setdefault(posterior.name, node) != node:
                first = self._bound[posterior.name]
                self._leave_out(node, f"the name {posterior.name!r} belongs to node {first}")
                continue
            self._posteriors[server_round][node] = posterior
