"""One round of fusion that knows no framework: its settings, its messages, and what a site does."""

import importlib
import logging
import runpy
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from klfusion._utils.checks import is_integer, is_number
from klfusion._utils.text import brief, is_unicode, printable
from klfusion.adapters import extract
from klfusion.errors import FileFormatError, KLFusionError
from klfusion.federation import signing
from klfusion.fusion.result import Fusion
from klfusion.io.storage import dumps, loads
from klfusion.posteriors.posterior import Posterior

VERSION = 1  # of the messages
MAX_BYTES = 64 * 2**20
FIT, SECOND, USE = "fit", "second", "use"  # requests to a site
HEADER = "federation"  # key of a message's header, in the provenance of its posterior
_MAX_NAME = 100  # bytes of a silo's name, which is part of a file's name
_MAX_REASON = 500  # characters kept of an untrusted text, of at most four bytes each
_log = logging.getLogger("klfusion.federation")


def one_line(text: str) -> str:
    """One printable line of bounded length, for names and reasons from untrusted senders."""
    return printable(text if len(text) <= _MAX_REASON else f"{text[:_MAX_REASON]}...")


@dataclass(frozen=True)
class Site:
    """A site as its functions see it: its name, and its own configuration.

    ``config["key"]`` is the path of a secret key. With it the site signs what it sends.
    """

    name: str
    config: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        given: Any = self.name
        is_text = isinstance(given, str) and is_unicode(given)
        if not is_text or not 0 < len(given.encode()) <= _MAX_NAME:
            text = f"expected a site's name of 1 to {_MAX_NAME} bytes"
            raise KLFusionError(f"{text}, got {one_line(repr(self.name))}")


@dataclass(frozen=True)
class Reply:
    """What a site sends: the bytes of a posterior's file with a signature, or an error."""

    data: bytes = b""
    signature: bytes = b""
    error: str = ""

    def parts(self) -> dict[str, bytes]:
        """The fields as bytes by name, without empty ones, for a message of any framework."""
        found = {"data": self.data, "signature": self.signature, "error": self.error.encode()}
        return {key: value for key, value in found.items() if value}

    @classmethod
    def of(cls, parts: Mapping[str, bytes]) -> "Reply":
        """The reply in a message; parts with other names are an error."""
        unknown = sorted(map(str, set(parts) - {own.name for own in fields(cls)}))
        if unknown or not parts:
            text = f"expected a message of data, signature or error, got {unknown or 'nothing'}"
            return cls(error=one_line(text))
        error = parts.get("error", b"")[: 4 * _MAX_REASON].decode(errors="replace")
        return cls(parts.get("data", b""), parts.get("signature", b""), one_line(error))


@dataclass(frozen=True, kw_only=True)
class Round:
    """One round of fusion: what sites do, what the server does, and their limits.

    A framework carries the messages: `klfusion.federation.flower`, `klfusion.federation.nvflare`,
    or a shared folder with ``klfusion site`` and ``klfusion coordinator``.

    Parameters
    ----------
    name : str
        Name of the round, never used before. It is in every message, and messages of other rounds
        are refused.
    fit : callable, optional
        ``fit(site)`` returns a fitted model that `klfusion.extract` reads, or a `Posterior`.
    privatize : callable, optional
        ``privatize(posterior, site)`` returns the posterior that leaves the site.
    use : callable, optional
        ``use(fused, site)`` is called at the site with the fused posterior.
    second : callable, optional
        ``second(fused, site)`` returns what the site sends in a second round: a model or posterior.
    combine : callable, optional
        ``combine(fusion, posteriors)`` returns the fusion of the second round. By default the
        posteriors replace the first ones of their silos, and all are fused again.
    silos : sequence of str, optional
        The only names that may take part. Those without a message are listed as missing.
    keys : mapping, optional
        Public key of each silo, as text or as a path. Only signed messages of these are accepted.
    min_silos : int
        Fewer usable posteriors are an error. It lists the silos left out, with reasons.
    n_silos : int, optional
        Number of silos to wait for; default: all of ``silos`` or ``keys``, else ``min_silos``.
    timeout : float
        Seconds for each of: the first round, the second round, sending the result back.
    max_bytes : int
        Largest accepted message; default 64 MiB.
    options : mapping
        Arguments of `klfusion.fuse`.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.mixture import BayesianGaussianMixture
    >>> from klfusion.federation import Round, Server, Site
    >>> def fit(site):
    ...     x = np.random.default_rng(site.config["seed"]).normal(size=(50, 2))
    ...     return BayesianGaussianMixture(n_components=1, random_state=0).fit(x)
    >>> wards = Round(name="wards", fit=fit)
    >>> server = Server(wards)
    >>> for seed, name in enumerate(["a", "b"]):
    ...     server.receive(name, wards.reply(Site(name, {"seed": seed})))
    >>> server.fuse().n_silos
    2
    """

    name: str
    fit: Callable[[Site], Any] | None = None
    privatize: Callable[[Posterior, Site], Posterior] | None = None
    use: Callable[[Posterior, Site], object] | None = None
    second: Callable[[Posterior, Site], Any] | None = None
    combine: Callable[[Fusion, Sequence[Posterior]], Fusion] | None = None
    silos: Sequence[str] | None = None
    keys: Mapping[str, str] | None = None
    min_silos: int = 2
    n_silos: int | None = None
    timeout: float = 600.0
    max_bytes: int = MAX_BYTES
    options: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._check_types()
        if self.silos is None and self.keys is not None:
            object.__setattr__(self, "silos", tuple(sorted(self.keys)))
        if self.n_silos is None:
            known = len(self.silos) if self.silos is not None else self.min_silos
            object.__setattr__(self, "n_silos", known)
        if not 1 <= self.min_silos <= self.expected or not self.timeout > 0:
            raise KLFusionError(
                "expected 1 <= min_silos <= n_silos and timeout > 0, got "
                f"min_silos={self.min_silos}, n_silos={self.n_silos}, timeout={self.timeout}"
            )

    def _check_types(self) -> None:
        """Refuse what would fail later, when sites have sent."""
        names, keys = self.silos, self.keys
        is_list = isinstance(names, Sequence) and not isinstance(names, str) and _texts(names)
        is_keys = isinstance(keys, Mapping) and _texts([*keys, *keys.values()])
        for key, fine, expected in (
            ("name", isinstance(self.name, str) and self.name != "", "the name of a round"),
            ("silos", names is None or is_list, "a list of names"),
            ("keys", keys is None or is_keys, "a mapping of names to public keys"),
            ("min_silos", is_integer(self.min_silos), "an integer"),
            ("n_silos", self.n_silos is None or is_integer(self.n_silos), "an integer"),
            ("timeout", is_number(self.timeout), "a number of seconds"),
            ("max_bytes", is_integer(self.max_bytes), "a number of bytes"),
            ("options", isinstance(self.options, Mapping), "a mapping of arguments of fuse"),
            *((k, getattr(self, k) is None or callable(getattr(self, k)), "a function")
              for k in ("fit", "privatize", "use", "second", "combine")),
        ):  # fmt: skip
            if not fine:
                raise KLFusionError(
                    f"expected {key} to be {expected}, got {brief(vars(self)[key])}"
                )
        if names is not None and len({*names}) < len(names):
            twice = Counter(names).most_common(1)[0][0]
            raise KLFusionError(f"expected silos with different names, got {twice!r} twice")

    @property
    def expected(self) -> int:
        """Number of silos to wait for."""
        return self.min_silos if self.n_silos is None else self.n_silos

    @classmethod
    def load(cls, source: str) -> "Round":
        """The round in a Python file, ``wines.py``, or in a module, ``wines:ROUND``."""
        module, _, name = source.partition(":")
        if module.endswith(".py"):
            if not Path(module).is_file():
                raise KLFusionError(f"{module}: expected a Python file, got none")
            found = runpy.run_path(module)
        else:
            found = vars(importlib.import_module(module))
        rounds = {k: v for k, v in found.items() if isinstance(v, cls) and name in ("", k)}
        if len({id(value) for value in rounds.values()}) != 1:
            raise KLFusionError(f"{source}: expected one Round, got {sorted(rounds) or 'none'}")
        return next(iter(rounds.values()))

    def reply(self, site: Site, request: str = FIT, fused: bytes = b"") -> Reply:
        """What a site does with a request. Nothing is raised: an error is a reply.

        The text of other exceptions than klfusion's may quote data. It stays in the site's log.
        """
        try:
            if request == USE:
                if self.use is not None:
                    self.use(self.read(fused, "fused posterior"), site)
                return Reply(b"used")
            return self.message(site, self.posterior(site, request, fused), request)
        except Exception as error:
            _log.exception("site %r replies with an error", site.name)
            reason = str(error) if isinstance(error, KLFusionError) else "see the log of the site"
            return Reply(error=one_line(f"site {site.name!r}: {type(error).__name__} ({reason})"))

    def _model(self, site: Site, request: str, fused: bytes) -> Any:
        if request == SECOND and self.second is not None:
            model = self.second(self.read(fused, "fused posterior"), site)
            if isinstance(model, Posterior):  # derived from the fused one, it may name other silos
                own = {key: value for key, value in model.provenance.items() if key != "silos"}
                model = replace(model, provenance=own)
            return model
        if request == FIT and self.fit is not None:
            return self.fit(site)
        raise KLFusionError(f"expected a request that this round answers, got {one_line(request)}")

    def posterior(self, site: Site, request: str = FIT, fused: bytes = b"") -> Posterior:
        """Fit, extract, privatize: the posterior that leaves the site."""
        model = self._model(site, request, fused)
        posterior = model if isinstance(model, Posterior) else extract(model, name=site.name)
        if self.privatize is not None:
            posterior = self.privatize(posterior, site)
        answers = [k for k in (SECOND, USE) if getattr(self, k) is not None]
        provenance = {**posterior.provenance, HEADER: {"answers": answers}}
        return replace(posterior, name=site.name, provenance=provenance)

    def message(self, site: Site, posterior: Posterior, request: str = FIT) -> Reply:
        """Pack and sign a posterior; errors name the site."""
        header = {"answers": [], **_header(posterior)}
        header |= {"version": VERSION, "round": self.name, "request": request}
        provenance = {**posterior.provenance, HEADER: header}
        data = dumps(replace(posterior, name=site.name, provenance=provenance))
        if len(data) > self.max_bytes:
            text = f"site {site.name!r}: expected a message of at most {self.max_bytes} bytes"
            raise KLFusionError(f"{text}, got {len(data)}: raise max_bytes")
        key = site.config.get("key")
        comment = f"klfusion round {self.name!r}, silo {site.name!r}, {request}"
        return Reply(data, signing.sign(data, key, comment) if key else b"")

    def read(self, data: bytes, source: str) -> Posterior:
        """A posterior from bytes, with all the checks of `klfusion.load`."""
        posterior = loads(data, source=source, max_bytes=self.max_bytes)
        if not isinstance(posterior, Posterior):
            raise FileFormatError(f"{source}: expected the posterior of one silo, got a fusion")
        return posterior

    def accept(self, reply: Reply, request: str) -> Posterior:
        """The posterior of a message, after all checks that concern this message alone."""
        if reply.error or not reply.data:
            raise KLFusionError(reply.error or "expected a posterior, got none")
        if len(reply.data) > self.max_bytes:
            text = f"expected at most {self.max_bytes} bytes"
            raise FileFormatError(f"{text}, got {len(reply.data)}: raise max_bytes")
        signer = None  # the signature comes first: nothing else of an unsigned message is read
        if self.keys is not None:
            signer = signing.signer(reply.data, reply.signature, self.keys)
        posterior = self.read(reply.data, "message")
        if signer is not None and posterior.name != signer:
            text = f"expected a message of {signer!r}, who signed it"
            raise KLFusionError(f"{text}, got one of {posterior.name!r}")
        if self.silos is not None and posterior.name not in self.silos:
            raise KLFusionError(f"the silo {posterior.name!r} is not one of this round")
        Site(posterior.name)  # a name that a file can have
        header = _header(posterior)
        answers = header.get("answers")
        if not isinstance(answers, list) or not {*map(str, answers)} <= {SECOND, USE}:
            raise KLFusionError(f"expected requests to answer, got {one_line(str(answers))}")
        got = tuple(header.get(key) for key in ("version", "round", "request"))
        if got != (VERSION, self.name, request):
            want = (VERSION, self.name, request)
            text = f"expected a message of version, round and request {want}"
            raise KLFusionError(f"{text}, got {one_line(str(got))}")
        return posterior


def _texts(values: Iterable[object]) -> bool:
    return all(isinstance(value, str) for value in values)


def _header(posterior: Posterior) -> dict[str, Any]:
    found = posterior.provenance.get(HEADER)
    return found if isinstance(found, dict) else {}
