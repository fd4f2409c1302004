"""Models of a fusion: for a new silo, or for one of its own."""

from dataclasses import replace
from typing import Any

from klfusion._utils.text import few
from klfusion.adapters.dispatch import rebuild
from klfusion.draws.fused import warn_varying
from klfusion.errors import KLFusionError
from klfusion.fusion.result import Fusion
from klfusion.methods.matching import comparing
from klfusion.pooling.regressions import VARYING, silo_posterior
from klfusion.posteriors.coefficients import is_regression
from klfusion.posteriors.compatibility import aligned_silos
from klfusion.posteriors.posterior import Posterior
from klfusion.posteriors.structure.regression import LOCAL


def model(fusion: Fusion, silo: str | None = None) -> Any:
    """See `Fusion.model`."""
    if silo is None and not is_regression(fusion.posterior):
        return rebuild(fusion.posterior)
    if silo is None and fusion.settings.pooling == "auto":
        shared = "this model is that of the pooled data, as certain as if they agreed"
        instead = "fusion.posterior has the mean over silos, pooling='hierarchical' lets them vary"
        warn_varying(fusion, f"{shared}: {instead}", 4)
    return rebuild(site(fusion, silo))


def site(fusion: Fusion, silo: str | None = None) -> Posterior:
    """See `Fusion.site`."""
    fused, settings = fusion.posterior, fusion.settings
    if not is_regression(fused):
        raise KLFusionError("expected a fusion of regressions, which have coefficients per silo")
    if silo is not None and silo not in fusion.silo_names:
        raise KLFusionError(f"expected a silo of {few(fusion.silo_names)}, got {silo!r}")
    number = None if silo is None else fusion.silo_names.index(silo)
    assert fused.structure is not None
    local = fused.structure.arrays.get(LOCAL[0])
    if silo is not None and local is not None and len(local) != fusion.n_silos:
        raise KLFusionError(f"silo {silo!r}: expected a fusion of silos, not of fusions")
    if silo is not None and fusion.silos is None and settings.pooling in VARYING:
        raise KLFusionError(f"silo {silo!r}: expected a fusion with its silos (keep_silos=True)")
    aligned = None if fusion.silos is None else aligned_silos(fusion.silos)
    with comparing(aligned or [fused]):
        found = silo_posterior(fused, aligned, settings.weight_array(), settings.pooling, number)
    if aligned is None or number is None:
        return found
    own, whole = aligned[number].structure, found.structure
    assert own is not None and whole is not None
    columns = {"columns": own.info.get("columns", [])}  # in the order in which the silo has them
    return replace(found, name=str(silo), structure=replace(whole, info={**whole.info, **columns}))
