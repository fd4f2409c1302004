"""MCMC objects of NumPyro and Pyro, and traces of PyMC."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from klfusion.adapters._draws import posterior_of_arrays
from klfusion.adapters._networks import numbers
from klfusion.adapters._sites import support_of
from klfusion.adapters.inference_data import free_of
from klfusion.errors import KLFusionError
from klfusion.posteriors.posterior import Posterior

# Beside those of guides: names in the libraries' modules of constraints, and the kind of transform.
_SUPPORTS = {
    "ordered_vector": "ordered",
    "lower_cholesky": "cholesky",
    "corr_cholesky": "cholesky_corr",
}


def extract(
    model: Any,
    name: str,
    variables: Sequence[str] | None = None,
    of_model: Any = None,
    **options: Any,
) -> Posterior:
    """The draws as a Normal over unconstrained coordinates; see `klfusion.from_draws`.

    Supports are those of the program's sample sites. Other sites are functions of these. A trace of
    PyMC does not know them; ``of_model`` does.
    """
    package = type(model).__module__.partition(".")[0]
    found = _READERS[package](model)
    variables = free_of(of_model, variables, options)
    if variables is None and found.get("supports"):
        variables = [key for key in found["draws"] if key in found["supports"]]
    if variables is not None:
        found["draws"] = {key: v for key, v in found["draws"].items() if key in variables}
    known = found.get("supports", {})
    found["supports"] = {key: s for key, s in known.items() if s["kind"] != "other"}
    return posterior_of_arrays(found, name, variables, options)


def _numpyro(mcmc: Any) -> dict[str, Any]:
    from numpyro import handlers  # noqa: PLC0415 (an extra)
    from numpyro.distributions import constraints  # noqa: PLC0415

    try:
        samples = mcmc.get_samples(group_by_chain=True)
    except (AssertionError, AttributeError) as error:
        raise KLFusionError("expected draws; call mcmc.run first") from error
    extra = mcmc.get_extra_fields(group_by_chain=True)
    seeded = handlers.seed(mcmc.sampler.model, 0)
    trace = handlers.trace(seeded).get_trace(*mcmc._args, **mcmc._kwargs)
    found: dict[str, Any] = {"draws": {key: numbers(own) for key, own in samples.items()}}
    found["supports"] = _of_trace(trace, constraints)
    if "diverging" in extra:
        found["diverging"] = np.asarray(extra["diverging"])
    return found


def _pyro(mcmc: Any) -> dict[str, Any]:
    from pyro import poutine  # noqa: PLC0415 (an extra)
    from pyro.distributions import constraints  # noqa: PLC0415

    samples = mcmc.get_samples(group_by_chain=True)
    found: dict[str, Any] = {"draws": {key: numbers(own) for key, own in samples.items()}}
    if mcmc._args is not None:
        trace = poutine.trace(mcmc.kernel.model).get_trace(*mcmc._args, **mcmc._kwargs)
        found["supports"] = _of_trace(trace.nodes, constraints)
    divergent = mcmc.diagnostics().get("divergences", {})
    found["diverging"] = np.ones(sum(len(own) for own in divergent.values()), dtype=bool)
    return found


def _pymc(trace: Any) -> dict[str, Any]:
    names = [name for name in trace.varnames if not name.endswith("__")]
    draws = {name: np.stack(trace.get_values(name, combine=False, squeeze=False)) for name in names}
    found: dict[str, Any] = {"draws": draws}
    if "diverging" in trace.stat_names:
        found["diverging"] = np.asarray(trace.get_sampler_stats("diverging"))
    return found


def _of_trace(sites: Any, constraints: Any) -> dict[str, Any]:
    """Supports of the sample sites that are not observed."""
    return {
        key: support_of(site["fn"].support, constraints, _SUPPORTS)
        for key, site in sites.items()
        if site["type"] == "sample" and not site["is_observed"]
    }


_READERS = {"numpyro": _numpyro, "pyro": _pyro, "pymc": _pymc}
