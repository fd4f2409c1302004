"""What the server of a round does: collect, set aside, fuse, release; all state is in a folder."""

import logging
import os
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np

from klfusion._fuse import fuse
from klfusion.errors import IncompatibleSilosError, KLFusionError
from klfusion.federation import store as stores
from klfusion.federation.compatible import check_same, compatible
from klfusion.federation.round import FIT, HEADER, SECOND, USE, Reply, Round, one_line
from klfusion.federation.store import file_key, sha256
from klfusion.fusion.result import Fusion
from klfusion.io.storage import dumps, save
from klfusion.posteriors.posterior import Posterior
from klfusion.report.summarize import findings

Ask = Callable[[str, bytes, Callable[[str], bool], int], Iterable[tuple[str, Reply]]]
_log = logging.getLogger("klfusion.federation")


class Server:
    """The server of a round.

    Parameters
    ----------
    definition : Round
    store : str or path, optional
        Folder for messages as they came, a journal, ``global.safetensors`` and ``report.html``. A
        server that is restarted with it continues where the last one stopped.
    senders : {"named", "identified", "unknown"}
        What the framework knows of senders. Named: the sender is the silo's name. Identified: the
        second message of a silo must come from the sender of its first.

    Attributes
    ----------
    posteriors : dict
        Accepted posteriors by name of the silo, in the first and in the second round.
    fusion : Fusion or None
        The result.
    findings : list of str
        What a person should look at in it, such as columns in other units or other priors.
    """

    def __init__(
        self,
        definition: Round,
        store: str | os.PathLike[str] | None = None,
        *,
        senders: Literal["named", "identified", "unknown"] = "identified",
    ) -> None:
        self.round, self._known_senders = definition, senders
        self.store = None if store is None else Path(store)
        self.fusion: Fusion | None = None
        self.findings: list[str] = []
        self.posteriors: dict[str, dict[str, Posterior]] = {request: {} for request in stores.FILES}
        self.senders: dict[str, str] = {}  # by name of the silo
        self._refused: dict[tuple[str, str], str] = {}  # reasons by request and sender
        self._not_fused: list[str] = []
        self._members: list[str] = []  # silos that are fused
        self._hashes: dict[tuple[str, str], str] = {}  # by request and name
        self._restored: set[str] = set()  # names whose posteriors an earlier server stored
        self._replaced: set[str] = set()  # hashes of messages that a silo replaced
        self._unusable: dict[str, dict[str, str]] = {}  # of `unusable`, by request
        if self.store is not None:
            self.store.mkdir(parents=True, exist_ok=True)
            self._read_store(self.store)

    @property
    def complete(self) -> bool:
        """Whether as many silos have sent a usable message as the round waits for."""
        return len(self.usable(FIT)) >= self.round.expected

    def usable(self, request: str) -> list[str]:
        """Silos whose messages can be fused with most others."""
        return [name for name in self.posteriors[request] if name not in self.unusable(request)]

    def unusable(self, request: str) -> dict[str, str]:
        """The other silos, which may still send another message, with reasons."""
        if request not in self._unusable:
            self._unusable[request] = self._compatible(self.posteriors[request])[1]
        return self._unusable[request]

    @property
    def left_out(self) -> list[str]:
        """Silos and senders left out, with reasons."""
        again = " (round 2: first posterior used)" if self.round.combine is None else " (round 2)"
        notes = [
            one_line(f"{self._who(sender)}: {reason}") + (again if request == SECOND else "")
            for (request, sender), reason in self._refused.items()
        ]
        unusable = [one_line(f"{self._named(n)}: {why}") for n, why in self.unusable(FIT).items()]
        return list(dict.fromkeys(notes + self._not_fused + unusable))

    def run(self, ask: Ask) -> None:
        """Run a round to its end: collect posteriors, fuse them, send the result back.

        ``ask(request, data, wanted, n)`` sends a request to senders for which ``wanted`` holds, to
        at least ``n`` of them, and yields their replies with the senders.
        """
        with self.alone():
            self._run(ask)

    def _run(self, ask: Ask) -> None:
        if not self.complete:
            missing = self.round.expected - len(self.usable(FIT))
            for sender, reply in ask(FIT, b"", lambda who: not self.known(who), missing):
                self.receive(sender, reply)
        self.fuse()
        if self.round.second is not None:
            asked = self.answering(SECOND)
            for sender, reply in ask(SECOND, self.fused(), self._answers(SECOND), len(asked)):
                self.receive(sender, reply, SECOND)
            for name in asked.keys() - self.posteriors[SECOND].keys():
                if (SECOND, asked[name]) not in self._refused:
                    self.set_aside(asked[name], "not connected", SECOND)
            self.fuse(SECOND)
        for sender, reply in ask(USE, self.fused(), self._answers(USE), 0):
            if reply.error:
                _log.warning("%s did not use the result: %s", self._who(sender), reply.error)

    def _answers(self, request: str) -> Callable[[str], bool]:
        return set(self.answering(request).values()).__contains__

    def known(self, sender: str, request: str = FIT) -> bool:
        """Whether a usable posterior of this sender is in the store."""
        return any(self.senders.get(name) == sender for name in self.usable(request))

    def receive(self, sender: str, reply: Reply, request: str = FIT) -> str | None:
        """Check and store a message; returns the reason if it is set aside.

        The first message of a silo that can be fused counts; another one changes nothing.
        """
        try:
            posterior = self.round.accept(reply, request)
            name, mine = posterior.name, self.posteriors[request]
            if self._known_senders == "named" and name != sender:
                raise KLFusionError(f"expected a message of {sender!r}, got one of {name!r}")
            if request == SECOND:
                self._check_second(sender, posterior)
            alike = [n for n in mine if n != name and file_key(n) == file_key(name)]
            if alike:  # for some file systems, and perhaps for whoever typed it
                raise KLFusionError(f"the names {name!r} and {alike[0]!r} differ by case alone")
            if name in mine and not self._replaces(sender, name, request, sha256(reply.data)):
                if self._hashes[request, name] != sha256(reply.data):
                    owner = self.senders.get(name, "the store")
                    raise KLFusionError(f"the name {name!r} belongs to a message of {owner}")
                if name in self._restored:  # a site may connect anew with another identity
                    self._restored.discard(name)
                    self.senders[name] = sender
                if self.senders.get(name) != sender:
                    raise KLFusionError(f"a copy of the message of {self.senders.get(name)}")
                return None
        except KLFusionError as error:
            return self.set_aside(sender, str(error), request)
        self._keep(sender, reply, posterior, request)
        self._refused.pop((request, sender), None)
        _log.info("received %s from %s", posterior, sender)
        return None

    def _replaces(self, sender: str, name: str, request: str, digest: str) -> bool:
        """Whether a silo sends anew what could not be fused."""
        mine = self._known_senders == "unknown" or self.senders.get(name) == sender
        if not mine or digest in self._replaced or name not in self.unusable(request):
            return False
        before = self._hashes[request, name]
        if before != digest:
            self._replaced.add(before)
            if request == FIT:
                self.senders.pop(name, None)
        return before != digest

    def set_aside(self, sender: str, reason: str, request: str = FIT) -> str:
        """Note a sender without a usable message, with the reason."""
        if self._refused.get((request, sender)) != reason:
            self._refused[request, sender] = reason
            _log.warning("left out %s", one_line(f"{self._who(sender)}: {reason}"))
        return reason

    def answering(self, request: str) -> dict[str, str]:
        """Senders of fused silos that answer a request and have not yet, by name of the silo."""
        headers = {n: self.posteriors[FIT][n].provenance[HEADER] for n in self._members}
        done = self.usable(request) if request in self.posteriors else []
        names = [n for n, own in headers.items() if request in own["answers"] and n not in done]
        return {name: self.senders[name] for name in names if name in self.senders}

    def fused(self) -> bytes:
        """The fused posterior as the bytes of a message."""
        if self.fusion is None:
            raise KLFusionError("expected a round with a result, got one before `fuse`")
        return dumps(self.fusion.posterior)

    def fuse(self, request: str = FIT) -> Fusion:
        """Fuse what can be fused and release it; the fusion lists who was left out, and why."""
        first, second = self.posteriors[FIT], self.posteriors[SECOND]
        if request == SECOND and self.round.combine is not None:
            start = self.fuse() if self.fusion is None else self.fusion
            notes, members = self._not_fused, self._members
            fusion = self._fused(second, partial(self.round.combine, start))
            self._not_fused = list(dict.fromkeys(notes + self._not_fused))
            self._members = members  # who answered the first request alone gets the result, too
        else:
            fusion = self._fused(first | second if request == SECOND else first)
        if self.left_out:
            provenance = {**fusion.provenance, "left_out": self.left_out}
            fusion = replace(fusion, provenance=provenance)
        self.fusion = fusion
        if self.store is not None:
            if request == FIT and self.round.second is not None:
                save(self.store / "first.safetensors", fusion)
            save(self.store / "global.safetensors", fusion)
            fusion.report(str(self.store / "report.html"))
        _log.info("%s", fusion)
        self.findings = findings(fusion)
        for finding in self.findings:
            _log.warning("look at %s", finding)
        return fusion

    def _fused(
        self,
        posteriors: Mapping[str, Posterior],
        combine: Callable[[list[Posterior]], Fusion] | None = None,
    ) -> Fusion:
        """Fusion of the largest set that can be fused; ``combine`` replaces `klfusion.fuse`."""
        options = {} if combine is not None else dict(self.round.options)
        weights = options.get("weights")
        kept, refused = self._compatible(posteriors)
        while True:
            self._note(refused)
            if len(kept) < self.round.min_silos:
                raise KLFusionError(
                    f"expected posteriors of at least {self.round.min_silos} silos within "
                    f"{self.round.timeout:g} s, got {len(kept)}; left out: "
                    f"{'; '.join(self.left_out) or 'no other site'}"
                )
            if isinstance(weights, Mapping):
                options["weights"] = {p.name: weights[p.name] for p in kept}
            self._members = [p.name for p in kept]
            try:
                return fuse(kept, **options) if combine is None else combine(kept)
            except IncompatibleSilosError as error:
                if error.silo is None:
                    raise
                refused = {**refused, error.silo: str(error)}
                kept = [p for p in kept if p.name != error.silo]

    def _compatible(
        self, posteriors: Mapping[str, Posterior]
    ) -> tuple[list[Posterior], dict[str, str]]:
        """The largest set that can be fused, and why others cannot."""
        weights, refused = self.round.options.get("weights"), {}
        if isinstance(weights, Mapping):
            refused = {n: f"no weight is given for {n!r}" for n in posteriors if n not in weights}
        kept, others = compatible([p for n, p in posteriors.items() if n not in refused])
        return kept, refused | others

    def _note(self, refused: Mapping[str, str]) -> None:
        """Silos that sent a posterior which is not fused, and expected silos without one."""
        notes = {self._named(name): reason for name, reason in refused.items()}
        absent = set(self.round.silos or ()) - set(self.posteriors[FIT])
        notes |= {f"silo {name!r}": "no usable message" for name in sorted(absent)}
        named = len(self.posteriors[FIT]) + sum(request == FIT for request, _ in self._refused)
        missing = self.round.expected - named
        if self.round.silos is None and missing > 0:
            notes[f"{missing} of {self.round.expected} silos"] = "no usable message"
        self._not_fused = [one_line(f"{who}: {reason}") for who, reason in notes.items()]

    def _check_second(self, sender: str, posterior: Posterior) -> None:
        name = posterior.name
        other = self._known_senders != "unknown" and self.senders.get(name, sender) != sender
        if other or name not in self.posteriors[FIT]:
            raise IncompatibleSilosError(f"expected the silo of the first message, got {name!r}")
        first = self.posteriors[FIT][name]
        if self.round.combine is None:
            check_same(first, posterior)
        elif np.array_equal(first.natural, posterior.natural):
            raise KLFusionError("expected an answer to the second request, got the first again")

    def _named(self, name: str) -> str:
        sender = self.senders.get(name, name)
        return f"silo {name!r}" if sender == name else f"silo {name!r} ({sender})"

    def _who(self, sender: str) -> str:
        names = [name for name, own in self.senders.items() if own == sender]
        return self._named(names[0]) if names else sender

    # What the folder holds.

    def alone(self) -> AbstractContextManager[None]:
        """Hold the folder while this process lives; two servers would mix their messages."""
        return stores.alone(self.store)

    def _keep(self, sender: str, reply: Reply, posterior: Posterior, request: str) -> None:
        name = posterior.name
        if self.store is not None:
            stores.keep(self.store, name, sender, reply, request)
        self._hashes[request, name] = sha256(reply.data)
        self.posteriors[request][name] = posterior
        self._unusable.pop(request, None)
        self.senders.setdefault(name, sender)

    def _read_store(self, store: Path) -> None:
        """Read what the folder holds; a damaged file counts as absent."""
        for request in stores.FILES:
            for path, reply in stores.messages(store, request):
                try:
                    posterior = self.round.accept(reply, request)
                except KLFusionError as error:
                    _log.warning("%s will be asked for again: %s", path, error)
                    continue
                self.posteriors[request][posterior.name] = posterior
                self._hashes[request, posterior.name] = sha256(reply.data)
        self._restored = set(self.posteriors[FIT])
        for line in self.journal():
            if line["request"] == FIT and line["silo"] in self.posteriors[FIT]:
                self.senders[line["silo"]] = line["sender"]

    def journal(self) -> list[dict[str, Any]]:
        """Stored messages in the order of arrival; a last line cut by a crash is left out."""
        return stores.journal(self.store)

    def accepted(self) -> list[dict[str, Any]]:
        """Those of the journal that count: not replaced, and not set aside later."""
        names = {request: set(self.usable(request)) for request in self.posteriors}
        if self.fusion is not None:
            names[FIT] &= set(self._members)
        return [
            line
            for line in self.journal()
            if line["silo"] in names.get(line["request"], ())
            and self._hashes[line["request"], line["silo"]] == line["sha256"]
        ]
