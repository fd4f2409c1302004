"""What a fusion remembers: its silos, and how it was made."""

from __future__ import annotations

import ast
from datetime import UTC, datetime
from typing import Any

import numpy as np

from klfusion._utils.arrays import FloatArray
from klfusion._utils.provenance import library_version
from klfusion.errors import KLFusionError
from klfusion.families import SiloVariation
from klfusion.fusion.result import Fusion
from klfusion.methods import METHODS, Auto, Method
from klfusion.methods.networks import Units
from klfusion.objective.problem import FusionProblem
from klfusion.posteriors.posterior import Posterior


def kept_silos(fusion: Fusion, what: str) -> tuple[Posterior, ...]:
    """What the silos sent; ``what`` cannot be done without."""
    if fusion.silos is None:
        raise KLFusionError(
            f"cannot {what}: this fusion does not hold what its silos sent; "
            "expected one made with keep_silos=True, which memory_limit and Dask do without: "
            "fuse its silos again"
        )
    return fusion.silos


def weights_of(fusion: Fusion) -> list[float]:
    """How much each silo counts."""
    return list(fusion.provenance.get("silo_weights", np.ones(fusion.n_silos)))


def pooling_of(fusion: Fusion) -> Any:
    """How matched components were made one."""
    return fusion.provenance.get("pooling", "average")


def divergence_of(fusion: Fusion) -> str:
    """What was minimised."""
    return str(fusion.provenance.get("divergence", "kl"))


def method_of(fusion: Fusion) -> Method | None:
    """The method's configuration from its written form; None if it is none of ours."""
    try:
        call = ast.parse(fusion.method, mode="eval").body
        assert isinstance(call, ast.Call) and isinstance(call.func, ast.Name)
        methods: list[type[Method]] = [*METHODS.values(), Units]
        known = {method.__name__: method for method in methods}
        settings = {str(k.arg): ast.literal_eval(k.value) for k in call.keywords}
        return known[call.func.id](**settings)
    except (AssertionError, KeyError, SyntaxError, TypeError, ValueError):
        return None


def min_support_of(fusion: Fusion) -> Any:
    """How many silos a global component must have."""
    return fusion.provenance.get("min_support", 1)


def certainty_of(fusion: Fusion) -> float | None:
    """At which common certainty components are compared, where silos came or went since."""
    known = fusion.provenance.get("certainty")
    valid = isinstance(known, float) and np.isfinite(known) and known > 0
    return known if valid else None


def variation_of(fusion: Fusion) -> FloatArray | None:
    """How much silos vary, as their components were compared."""
    known, family = fusion.provenance.get("variation"), fusion.posterior.family
    if not isinstance(family, SiloVariation):
        return None
    try:
        found = np.asarray(known, dtype=np.float64)
    except (TypeError, ValueError):
        return None
    return found if found.shape == (family.variation_size,) and np.isfinite(found).all() else None


def matching_problem(fusion: Fusion, problem: FusionProblem) -> FusionProblem:
    """The problem as the fusion's method compares components."""
    return compared(method_of(fusion), problem, variation=variation_of(fusion))


def compared(
    method: Method | None,
    problem: FusionProblem,
    *like: FloatArray,
    variation: FloatArray | None = None,
) -> FusionProblem:
    """The problem as a method compares components (as others are, if given)."""
    if isinstance(method, Auto):
        return method.matching(problem, *like, variation=variation)
    if isinstance(method, Units):
        return method.matching(problem, *like)
    return problem.centred(*like)


def history_with(fusion: Fusion, action: str, silo: str, *, rematch: bool = False) -> list[Any]:
    """The audit trail with one more entry."""
    entry = {
        "action": action,
        "silo": silo,
        "rematch": rematch,
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        "klfusion": library_version(),
    }
    return [*fusion.provenance.get("history", []), entry]
