"""Times that have a bound: files of strangers, one strange silo, the demonstration, the tests.

The peer of each row is its bound: a ratio of 1 or more keeps it.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache, partial
from typing import Any

import numpy as np

import klfusion as kf
from benchmarks.measure import Measured, Row, compare, measure
from klfusion.io import container, kept, parts, storage, strict_json
from klfusion.posteriors.structure import Structure

LOADING = 1.0 / 10e6  # seconds of CPU per byte
FUSING, N_COMPONENTS, DIM = 10.0, 1_000, 10  # seconds of CPU; size of the strange silo
DEMO, TESTS = 60.0, 180.0  # seconds of wall time
N_SILOS, QUICK_SILOS = 40_000, 500


def run(quick: bool = False) -> list[Row]:
    """Rows of loading, of fusing, and without ``quick`` of the demonstration and the tests."""
    n = QUICK_SILOS if quick else N_SILOS
    rows = [
        _loaded(f"loading {n:,} silos of one {what}", many(silo, n)) for what, silo in smallest()
    ]
    rows += [
        _loaded(f"loading {n // 4:,} silos, each of another {what}", different(n // 4, make))
        for what, make in FORMS.items()
    ]
    rows.append(_loaded("loading a regression of many names", many_names(10 * n)))
    rows.append(_loaded("loading a fusion without its silos", without_silos(5 * n)))
    rows.append(_loaded("loading nine forms around one list of names", one_info(5 * n)))
    rows.append(_loaded("loading words of many accents", accents(n // 10)))
    for dim in (2, DIM):
        fused = measure(partial(kf.fuse, strange(N_COMPONENTS // (20 if quick else 1), dim)))
        problem = f"10 silos and one of {N_COMPONENTS:,} overlapping components, {dim} dimensions"
        rows.append(_bounded(problem, fused, FUSING, "CPU time"))
    if not quick:
        rows += [_process(name, *own) for name, own in PROCESSES.items()]
    return rows


@cache
def smallest() -> list[tuple[str, kf.Posterior]]:
    """The smallest silos of some families."""
    gamma, wishart = kf.families.Gamma(), kf.families.NormalWishart(1)
    rate = kf.Posterior(gamma, gamma.natural([3.0], [1.0]))
    natural = wishart.natural([[0.0]], [9.0], [[[9.0]]], [9.0])
    normal = kf.Posterior(wishart, natural, prior=natural[0], counts=np.array([9.0]))
    weights = Structure("mixture", {"counts": np.array([9.0]), "weight_prior": np.array(1.0)})
    return [
        ("Gamma", rate),
        ("Normal-Wishart, prior and counts", normal),
        ("Normal-Wishart, weights of a mixture", replace(normal, structure=weights)),
    ]


def many(silo: kf.Posterior, n_silos: int, last: str = "last") -> bytes:
    """The file of a fusion of so many copies of a silo."""
    names = [*(f"{j:x}" for j in range(n_silos - 1)), last]
    return together([replace(silo, name=names[0])] * n_silos, names)


def different(n_silos: int, make: Callable[[int], kf.Posterior]) -> bytes:
    """The file of silos of which no two have one form."""
    return together([make(j) for j in range(n_silos)], [f"{j:x}" for j in range(n_silos)])


def together(silos: Sequence[kf.Posterior], names: Sequence[str]) -> bytes:
    """The file of a fusion of silos, made by hand: fusing takes longer, or is impossible."""
    rate = smallest()[0][1]
    fusion = kf.fuse([replace(rate, name=name) for name in "ab"], pooling="average")
    document, arrays = parts.take_apart(replace(fusion, path=None, probability=None))
    own, sizes = document["fusion"], [silo.n_components for silo in silos]
    own["silo_names"], own["settings"]["weights"] = [*names], [1.0] * len(silos)
    taken = [parts.posterior_parts(silo) for silo in silos]
    own["silos"], arrays["silos"] = kept.pack(taken)
    arrays |= {"labels": np.zeros(sum(sizes), np.int64), "divergences": np.zeros(sum(sizes))}
    arrays["offsets"] = np.cumsum([0, *sizes])
    return _file(document, arrays)


def _file(document: dict[str, Any], arrays: dict[str, Any]) -> bytes:
    document["sha256"] = storage._digest(document, arrays)
    text = strict_json.canonical_json(document).decode()
    return b"".join(container.encode({"klfusion": text}, arrays))


def _rate(kind: str, arrays: dict[str, Any] | None = None, **info: Any) -> kf.Posterior:
    return replace(smallest()[0][1], structure=Structure(kind, arrays or {}, info))


def _mixture(j: int) -> kf.Posterior:
    arrays, info = (
        {"counts": np.array([9.0]), "weight_prior": np.ones(())},
        {"covariance_type": f"{j:x}"},
    )
    return replace(smallest()[1][1], structure=Structure("mixture", arrays, info))


def _regression(j: int) -> kf.Posterior:
    normal = kf.families.Normal(1)
    natural, info = normal.natural([[0.0]], [[[1.0]]]), {"coordinates": [f"{j:x}"], "local": []}
    return kf.Posterior(
        normal, natural, prior=natural[0], structure=Structure("regression", {}, info)
    )


def _of_kind(kind: str, j: int) -> kf.Posterior:
    """The smallest silo of a kind, with an entry of its own."""
    one, square = np.ones(1), np.ones((1, 1))
    arrays: dict[str, dict[str, Any]] = {
        "hmm": {"start": one, "start_prior": one, "transition": square, "transition_prior": square},
        "topics": {"topic_mass": one, "doc_topic_prior": one},
    }
    info = {"component_dims": [f"{j:x}"], "variables": [], "shared": [], "features": [f"{j:x}"]}
    return _rate(kind, arrays.get(kind), **info)


# Silos by their number.
FORMS: dict[str, Callable[[int], kf.Posterior]] = {
    "kind": lambda j: _rate(f"{j:x}"),
    "info": lambda j: _rate("own", a=j),
    "kind of mixture": _mixture,
    "name of a coefficient": _regression,
    "name of an array": lambda j: _rate("own", {f"{j:x}": np.ones(1)}),
    "shape of an empty array": lambda j: _rate("own", {"x": np.ones((0, j))}),
    "name of a factor": lambda j: kf.Posterior(
        kf.families.Product(**{f"a{j:x}": kf.families.Gamma()}), np.ones((1, 2))
    ),
    "hidden Markov model": partial(_of_kind, "hmm"),
    "model of topics": partial(_of_kind, "topics"),
    "draws": partial(_of_kind, "components"),
    "classes": partial(_of_kind, "classes"),
}


def without_silos(n_silos: int) -> bytes:
    """The file of a fusion of so many silos, of which it has names and labels alone."""
    rate = smallest()[0][1]
    fusion = kf.fuse([replace(rate, name=name) for name in "ab"], pooling="average")
    document, arrays = parts.take_apart(replace(fusion, path=None, probability=None, silos=None))
    own = document["fusion"]
    own["silo_names"] = [f"{j:x}" for j in range(n_silos)]
    own["settings"]["weights"] = [1] * n_silos
    arrays |= {"labels": np.zeros(n_silos, np.int64), "divergences": np.zeros(n_silos)}
    return _file(document, arrays | {"offsets": np.arange(n_silos + 1)})


def one_info(n_names: int) -> bytes:
    """Nine silos of different forms around one long list of names."""
    normal, info = (
        kf.families.Normal(1),
        {"coordinates": ["x"], "local": [*map(str, range(n_names))]},
    )
    arrays = [{f"{j}": np.ones(1)} for j in range(9)]
    silos = [
        kf.Posterior(normal, np.ones((1, 2)), structure=Structure("regression", own, info))
        for own in arrays
    ]
    return together(silos, [*"abcdefghi"])


def accents(n_words: int) -> bytes:
    """Topics of words with thirty accents on every letter, in the wrong order."""
    letter, dim = "e" + "\u0301\u0316" * 15, n_words
    words = [f"{j:x}" + 5 * letter for j in range(n_words)]
    structure = Structure("topics", {}, {"vocabulary": words})
    family = kf.families.Dirichlet(dim)
    return storage.dumps(kf.Posterior(family, np.ones((1, dim)), structure=structure))


def many_names(n: int) -> bytes:
    """A regression with so many local coefficients."""
    normal = kf.families.Normal(1)
    info = {"coordinates": ["x"], "local": [str(k) for k in range(n)]}
    structure = Structure("regression", {}, info)
    return storage.dumps(
        kf.Posterior(normal, normal.natural([[0.0]], [[[1.0]]]), structure=structure)
    )


def strange(n_components: int, dim: int) -> list[kf.Posterior]:
    """Ten silos of five components, and one of ``n_components`` that overlap."""
    rng, family = np.random.default_rng(0), kf.families.NormalWishart(dim)
    prior = family.natural(np.zeros((1, dim)), [1.0], dim * np.eye(dim)[None], [float(dim)])[0]

    def silo(means: np.ndarray, count: float, name: str) -> kf.Posterior:
        kappa = np.full(len(means), count)
        scatter = (kappa + dim)[:, None, None] * np.eye(dim)
        natural = family.natural(means, kappa, scatter, kappa + dim)
        return kf.Posterior(family, natural, name=name, prior=prior, counts=kappa - 1.0)

    true = rng.normal(scale=10.0, size=(5, dim))
    honest = [silo(true + 0.1 * rng.normal(size=true.shape), 200.0, f"h{j}") for j in range(10)]
    return [*honest, silo(0.3 * rng.normal(size=(n_components, dim)), 100.0, "strange")]


def _loaded(problem: str, data: bytes) -> Row:
    measured = measure(partial(storage.loads, data))
    megabytes = len(data) / 1e6
    row = _bounded(f"{problem}, {megabytes:.2g} MB", measured, LOADING * len(data), "CPU time")
    note = f"{measured.cpu / len(data) * 10e6:.2g} s of CPU per 10 MB"
    if measured.peak_mb is not None:
        note += f", {measured.peak_mb * 2**20 / len(data):.2g} times its size in memory"
    return {**row, "note": note}


def _bounded(problem: str, measured: Measured, bound: float, what: str) -> Row:
    limit = Measured(None, bound, bound, None)
    took = measured.cpu if what == "CPU time" else measured.wall
    note = f"bound of {what}"
    return compare(problem, f"bound, {bound:.2g} s", measured, limit, ratio=bound / took, note=note)


PROCESSES = {
    "klfusion demo": (["-m", "klfusion", "demo", "--out"], DEMO),
    "the tests, without the slow ones": (["-m", "pytest", "-q", "-n", "auto", "-m"], TESTS),
}


def _process(name: str, arguments: list[str], bound: float) -> Row:
    with tempfile.TemporaryDirectory() as folder:
        last = folder if "demo" in arguments else "not slow"
        command = [sys.executable, *arguments, last]
        call = partial(subprocess.run, command, stdout=subprocess.DEVNULL, check=False)
        return _bounded(name, measure(call), bound, "wall time")
