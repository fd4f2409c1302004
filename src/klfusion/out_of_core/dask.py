"""`fuse` on a Dask cluster: silos live on workers, and only sums and labels travel.

What a dead worker held is read and computed again by the others.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError
from contextlib import contextmanager
from functools import partial
from itertools import pairwise, zip_longest
from operator import attrgetter
from typing import Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike

try:
    from distributed import Client, Future, KilledWorker
    from distributed.comm import CommClosedError
except ImportError as error:
    from klfusion.errors import MissingDependencyError

    raise MissingDependencyError(
        f"klfusion.out_of_core.dask needs {error.name}, which is not installed: "
        "pip install 'klfusion[dask]'"
    ) from error

from klfusion._fuse import named_silos, posterior_of
from klfusion._utils.arrays import IntArray
from klfusion._utils.running import progress_bar
from klfusion.errors import KLFusionError
from klfusion.families import Family
from klfusion.fusion.result import Fusion
from klfusion.methods import Method
from klfusion.objective.batches import ProblemBatches
from klfusion.objective.problem import FusionProblem
from klfusion.out_of_core.batches import fuse_batches
from klfusion.posteriors.posterior import Posterior

_T = TypeVar("_T")
_BATCHES = 4  # for each thread of the cluster, so that none waits long for the others
_ADDRESS = re.compile(r"[a-z]+://.+")
TIMEOUT = "10s"  # for a scheduler to answer


def fuse(
    models: Sequence[Any] | Mapping[str, Any],
    client: Client,
    *,
    method: str | Method = "auto",
    n_components: int | None = None,
    weights: ArrayLike | Mapping[str, float] | None = None,
    min_support: int = 1,
    random_state: int | np.random.Generator | None = 0,
    progress: bool | None = None,
) -> Fusion:
    """Fuse silos on a Dask cluster.

    Parameters
    ----------
    models : sequence or mapping of name to model
        As for `klfusion.fuse`; also futures of them. Paths must be readable where workers run.
    client : distributed.Client
    method, n_components, weights, min_support, random_state, progress
        As for `klfusion.fuse_files`; the silos' posteriors are not kept.

    Examples
    --------
    >>> from distributed import Client
    >>> import klfusion as kf
    >>> from klfusion.out_of_core import dask
    >>> rates = kf.families.Gamma()
    >>> shapes = {"a": [30, 900], "b": [910, 32], "c": [31, 250]}
    >>> silos = {n: kf.Posterior(rates, rates.natural(s, [10, 10])) for n, s in shapes.items()}
    >>> with Client(processes=False, n_workers=1, dashboard_address=None) as client:
    ...     dask.fuse(silos, client).labels
    (array([0, 1]), array([1, 0]), array([0, 2]))
    """
    named = named_silos(models)
    if not isinstance(client, Client) or client.status != "running":
        raise KLFusionError(
            "expected a connected distributed.Client, as connect('tcp://127.0.0.1:8786') gives, "
            f"got {client!r}"
        )
    asked: dict[str, Any] = {"n_components": n_components, "weights": weights}
    asked |= {"min_support": min_support, "random_state": random_state}
    with one_error(client), progress_bar(progress) as report:
        return fuse_batches(OnWorkers(client, named), method, report=report, **asked)


def connect(address: str, timeout: str = TIMEOUT) -> Client:
    """A client of the scheduler at an address, which must answer.

    Parameters
    ----------
    address, timeout : str
        Such as ``"tcp://127.0.0.1:8786"`` and ``"10s"``.
    """
    if not _ADDRESS.match(address):
        raise KLFusionError(
            f"expected the address of a Dask scheduler such as 'tcp://127.0.0.1:8786', "
            f"got {address!r}"
        )
    try:
        return Client(address, timeout=timeout, set_as_default=False)
    except (OSError, ValueError, TimeoutError) as error:
        raise KLFusionError(
            f"expected a Dask scheduler at {address!r}, got none that answers within {timeout}"
        ) from error


@contextmanager
def one_error(client: Client) -> Iterator[None]:
    """Say what happened to the cluster in one sentence."""
    address = client.scheduler.address if client.scheduler is not None else "?"
    try:
        yield
    except KilledWorker as error:
        raise KLFusionError(
            f"Dask: a task was tried on several workers and each died, perhaps for lack of memory "
            f"({error}): give workers more memory"
        ) from error
    except (CancelledError, CommClosedError, TimeoutError, ConnectionError) as error:
        raise KLFusionError(
            f"Dask: the scheduler at {address} went away before the fusion was finished: "
            "start it again and fuse anew; the silos are untouched"
        ) from error


class OnWorkers:
    """Batches of silos on workers, of pairs of a name or None and a model, path or future."""

    def __init__(self, client: Client, named: Sequence[tuple[str | None, Any]]) -> None:
        threads = sum(client.nthreads().values())
        if threads == 0:
            raise KLFusionError(
                f"Dask: expected workers at {client.scheduler.address}, got none: "
                "start them with `dask worker`"
            )
        count = min(len(named), _BATCHES * threads)
        numbered = [(number, *one) for number, one in enumerate(named)]
        edges = np.linspace(0, len(named), count + 1).astype(int)
        chunks = [numbered[a:b] for a, b in pairwise(edges)]
        self._client, self._edges = client, edges
        # Not scattered: what a task was given, the scheduler can give to another worker.
        self._batches = [_submitted(client, chunk) for chunk in chunks]

    def some(self, numbers: IntArray) -> list[Posterior]:
        """The posteriors of some silos."""
        batch = np.searchsorted(self._edges, numbers, side="right") - 1
        found = np.unique(batch)
        which = [numbers[batch == k] - self._edges[k] for k in found]
        some = _mapped(self._client, _some, [self._batches[k] for k in found], which)
        return [one for own in some for one in own]

    def map(self, task: Callable[..., _T], *arguments: Sequence[Any]) -> Iterable[_T]:
        """Where each batch is."""
        return _mapped(self._client, task, self._batches, *arguments)

    def parts(self, make: Callable[..., FusionProblem], *arguments: Sequence[Any]) -> WorkerParts:
        """What is made of each batch stays on the workers."""
        futures = self._client.map(make, self._batches, *arguments, pure=False)
        family = self._client.submit(attrgetter("family"), futures[0]).result()
        return WorkerParts(self._client, family, futures)


class WorkerParts(ProblemBatches):
    """Parts on workers."""

    def __init__(self, client: Client, family: Family, futures: Sequence[Future]) -> None:
        self.family = family
        self._client, self._parts = client, futures

    def map(self, task: Callable[..., _T], *arguments: Sequence[Any]) -> Iterable[_T]:
        """Where each part is."""
        return _mapped(self._client, task, self._parts, *arguments)

    def reduce(
        self, task: Callable[..., _T], combine: Callable[[_T, _T], _T], *arguments: Sequence[Any]
    ) -> _T:
        """Neighbours combined, and their neighbours, until one is left."""
        level = self._client.map(task, self._parts, *arguments, pure=False)
        while len(level) > 1:
            level = [
                a if b is None else self._client.submit(combine, a, b, pure=False)
                for a, b in zip_longest(level[::2], level[1::2])
            ]
        result: _T = level[0].result()
        return result


def _mapped(client: Client, task: Callable[..., Any], *given: Sequence[Any]) -> list[Any]:
    return list(client.gather(client.map(task, *given, pure=False)))


def _submitted(client: Client, chunk: Sequence[tuple[int, str | None, Any]]) -> Future:
    """A batch on a worker; Dask looks through it for futures only where there are some."""
    if any(isinstance(model, Future) for _, _, model in chunk):
        return client.submit(_read, chunk, pure=False)
    return client.submit(partial(_read, chunk), pure=False)


def _read(chunk: Sequence[tuple[int, str | None, Any]]) -> list[Posterior]:
    return [posterior_of(model, name, number) for number, name, model in chunk]


def _some(posteriors: Sequence[Posterior], which: IntArray) -> list[Posterior]:
    return [posteriors[j] for j in which]
