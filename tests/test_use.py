"""Whatever loads can be used: a result or a `KLFusionError`, never anything else."""

from __future__ import annotations

import traceback
import warnings
from collections import Counter

import numpy as np
import pytest
from sklearn.linear_model import BayesianRidge

import klfusion as kf
from klfusion.errors import KLFusionError
from klfusion.io.storage import loads
from tests.helpers.mutated import mutated, specimens


def fused(obj, silos, **how):
    return kf.fuse([*silos[:2], obj] if isinstance(obj, kf.Posterior) else [obj], **how)


def with_added(obj, silos):
    if isinstance(obj, kf.Posterior):
        return kf.fuse(silos[:2]).add(obj, name="new")
    return obj.add(silos[0], name="new")


def reported(obj, silos, path):
    fusion = kf.fuse([obj]) if isinstance(obj, kf.Posterior) else obj
    return fusion.report(str(path)), repr(fusion), fusion._repr_html_()


OF_BOTH = {
    "report": reported,
    "fuse": lambda obj, silos, _: fused(obj, silos),
    "robust": lambda obj, silos, _: fused(obj, silos, pooling="robust"),
    "add": lambda obj, silos, _: with_added(obj, silos),
    "model": lambda obj, *_: kf.adapters.rebuild(getattr(obj, "posterior", obj)),
    "save": lambda obj, _, path: kf.save(path, obj),
}
OF_FUSIONS = {
    "remove": lambda obj, *_: obj.remove(obj.silo_names[0]),
    "at": lambda obj, *_: obj.at(n_components=2),
    "support": lambda obj, *_: obj.with_min_support(2),
    "diagnose": lambda obj, *_: kf.diagnose(obj),
}


def use(n_operations, seed, path):
    """Use mutated files; returns the numbers of files and of each foreign exception."""
    rng, silos = np.random.default_rng(seed), specimens()
    fusions = {kind: kf.fuse(own) for kind, own in silos.items()}
    done, seen, foreign = 0, Counter(), Counter()
    while done < n_operations:
        kind = [*silos][rng.integers(len(silos))]
        obj = fusions[kind] if rng.random() < 0.5 else silos[kind][rng.integers(3)]
        try:
            data = mutated(obj, rng)
        except ValueError:  # what no file can hold
            continue
        try:
            got = loads(data)
        except KLFusionError:
            seen["refused"] += 1
            continue
        seen["loaded"] += 1
        known = OF_BOTH | (OF_FUSIONS if isinstance(got, kf.Fusion) else {})
        for name, operation in known.items():
            done += 1
            try:
                operation(got, silos[kind], path)
            except KLFusionError:
                seen["errors"] += 1
            except Exception as error:
                last = traceback.extract_tb(error.__traceback__)[-1]
                foreign[f"{name}: {error!r} at {last.filename}:{last.lineno}"] += 1
    return seen, foreign


@pytest.mark.parametrize(
    "n_operations", [400, pytest.param(20_000, marks=pytest.mark.slow)], ids=["some", "many"]
)
def test_mutated_files_are_used_or_refused(n_operations, tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        seen, foreign = use(n_operations, n_operations, tmp_path / "file")
    assert min(seen["loaded"], seen["refused"]) > n_operations / 50
    assert foreign == {}


# Arguments of other types ------------------------------------------------------------------------

RATES = kf.families.Gamma()
A = kf.Posterior(RATES, RATES.natural([30.0, 900.0], [10, 10]), name="a")
B = kf.Posterior(RATES, RATES.natural([31.0, 900.0], [10, 10]), name="b")
C = kf.Posterior(RATES, A.natural, name="c")
FUSION = kf.fuse([A, B])
ROWS = np.random.default_rng(0).normal(size=(30, 2))
DRAWS = {"x": np.random.default_rng(0).normal(size=(2, 50))}
RIDGE = BayesianRidge().fit(ROWS, ROWS[:, 0])
WRONG = [
    None, True, 3, -1, 0.5, 10**30, 10**400, float("nan"), float("inf"), "x", "", b"x", [], {}, (),
    [1], ["x"], {"x": 1}, {1: 2}, np.array(3), np.array([1.0, 2.0]), np.array([]), np.array(["x"]),
    object(), type, 1j, set(), range(3), [[]], [None], A, FUSION, RATES, np.float64(2),
]  # fmt: skip
CALLS = {
    "fuse": lambda w, _: kf.fuse(w),
    "fuse one": lambda w, _: kf.fuse([A, w]),
    "load": lambda w, _: kf.load(w),
    "load max_bytes": lambda w, path: kf.load(path, max_bytes=w),
    "save": lambda w, path: kf.save(f"{path}.other", w),
    "add": lambda w, _: FUSION.add(w),
    "add name": lambda w, _: FUSION.add(C, name=w),
    "add weight": lambda w, _: FUSION.add(C, weight=w),
    "add rematch": lambda w, _: FUSION.add(C, rematch=w),
    "remove": lambda w, _: FUSION.remove(w),
    "at": lambda w, _: FUSION.at(n_components=w),
    "at penalty": lambda w, _: FUSION.at(penalty=w),
    "support": lambda w, _: FUSION.with_min_support(w),
    "sources": lambda w, _: FUSION.sources(w),
    "report silos": lambda w, path: FUSION.report(f"{path}.html", w),
    "diagnose": lambda w, _: kf.diagnose(w),
    "extract": lambda w, _: kf.extract(w, name="x"),
    "words": lambda w, _: kf.vocabulary.words(w),
    "rebuild": lambda w, _: kf.adapters.rebuild(w),
    "penalty": lambda w, _: kf.fuse([A, B], method=kf.Penalised(w)),
    "loss": lambda w, _: kf.fuse([A, B], method=kf.MaxLoss(w)),
    "divergence": lambda w, _: kf.fuse([A, B], method=kf.Auto(divergence=w)),
    "starts": lambda w, _: kf.fuse([A, B], method=kf.Auto(n_init=w)),
    "files": lambda w, _: kf.fuse_files(w, memory_limit="64MB"),
    "limit": lambda w, path: kf.fuse_files([path], memory_limit=w),
    "draws": lambda w, _: kf.from_draws(w, name="x"),
    "draws name": lambda w, _: kf.from_draws(DRAWS, name=w),
    "draws prior": lambda w, _: kf.from_draws(DRAWS, name="x", prior=w),
    "draws observations": lambda w, _: kf.from_draws(DRAWS, name="x", n_observations=w),
    "relabel": lambda w, _: kf.relabel(w, components="k"),
    "posterior draws": lambda w, _: FUSION.posterior_draws(w),
    "report local": lambda w, path: FUSION.report(f"{path}.html", local=w),
    "resamples": lambda w, _: kf.diagnose(FUSION, resamples=w),
    "audit": lambda w, _: kf.audit(w, ROWS),
    "audit rows": lambda w, _: kf.audit(kf.extract(RIDGE, name="a", n_observations=30), w),
    "ridge": lambda w, _: kf.extract(RIDGE, name="a", n_observations=w),
    "refit head": lambda w, _: kf.refit_head(w, w),
    "head statistics": lambda w, _: kf.head_statistics(w, ROWS, ROWS, name="a"),
    "privatize": lambda w, _: kf.privatize(w, epsilon=1.0, delta=1e-6),
}
FUSE = ("method", "n_components", "weights", "pooling", "random_state", "progress", "keep_silos")
CALLS |= {f"fuse {key}": lambda w, _, key=key: kf.fuse([A, B], **{key: w}) for key in FUSE}
FIELDS = ("family", "natural", "name", "prior", "counts", "structure", "provenance")
CALLS |= {
    f"posterior {key}": lambda w, _, key=key: kf.Posterior(
        **({"family": RATES, "natural": A.natural} | {key: w})
    )
    for key in FIELDS
}


@pytest.mark.parametrize("call", CALLS)
def test_arguments_of_other_types(call, tmp_path):
    kf.save(tmp_path / "a", A)
    foreign = []
    for wrong in WRONG:
        try:
            CALLS[call](wrong, str(tmp_path / "a"))
        except KLFusionError:
            pass
        except Exception as error:
            foreign.append(f"{wrong!r}: {error!r}")
    assert foreign == []


@pytest.mark.parametrize("exponent", [50, 100, 150])
def test_a_silo_of_huge_values_is_named(exponent):
    huge = kf.Posterior(RATES, A.natural * 10.0**exponent, name="huge")
    for use_it in (lambda: kf.fuse([A, B, huge]), lambda: FUSION.add(huge)):
        with pytest.raises(KLFusionError, match=r"silo 'huge', component 1: expected parameters"):
            use_it()
