"""What files say about noise and budgets: one silo's, and those of a fusion's silos."""

from collections.abc import Mapping, Sequence
from typing import Any

KEY = "privacy"  # in provenance: of a silo its statement, of a fusion a short one by silo
AUDITED = "audited"
_SHORT = ("mechanism", "neighbours", "epsilon", "delta")
_NEIGHBOURS = {"add-remove": "one row added or removed", "replace": "one row replaced"}


def budgets(silos: Sequence[Any]) -> dict[str, dict[str, Any]] | None:
    """The budget of each silo that has one, also of silos within fusions; None if none has."""
    found: dict[str, dict[str, Any]] = {}
    for silo in silos:
        own = silo.provenance.get(KEY)
        if not isinstance(own, Mapping):
            continue
        each = {silo.name: own} if "mechanism" in own else own
        for name, one in each.items():
            if isinstance(one, Mapping):
                found[name] = {key: one[key] for key in _SHORT if key in one}
    return found or None


def described(provenance: Mapping[str, Any], n_silos: int | None = None) -> list[str]:
    """Sentences about the budget of a silo, or those of a fusion of ``n_silos``."""
    own = provenance.get(KEY)
    if not isinstance(own, Mapping) or not own:
        return ["No noise was added: there is no privacy budget, and nothing is promised."]
    if "mechanism" in own:
        return [*_of_silo(own)]
    lines = [f"Silo {name!r}: {_budget(one)}." for name, one in own.items()]
    if n_silos is not None and len(own) < n_silos:
        lines.append("Other silos added no noise, and nothing is promised to their people.")
    return lines


def _of_silo(own: Mapping[str, Any]) -> list[str]:
    parts = dict(own.get("sensitivity") or {})
    noise = dict(own.get("noise_sd") or {})
    each = ", ".join(f"{k} {v:.4g} (noise {noise.get(k, 0.0):.4g})" for k, v in parts.items())
    lines = [f"Noise was added: {own['mechanism']}.", f"Budget: {_budget(own)}."]
    if each:
        lines.append(f"Sensitivity of the sums, and standard deviation of their noise: {each}.")
    spent = own.get("spent")
    if isinstance(spent, Mapping):
        number = spent["releases"]
        those = "The only release" if number == 1 else f"All {number} releases"
        spends = "spends" if number == 1 else "spend"
        lines.append(f"{those} in the site's record {spends} {_budget({**own, **spent})}.")
    return lines


def _budget(own: Mapping[str, Any]) -> str:
    if "epsilon" not in own:
        return f"none ({own.get('mechanism', 'unknown')})"
    tables = _NEIGHBOURS.get(str(own.get("neighbours")), "one row")
    return f"epsilon {own['epsilon']:.4g} at delta {own['delta']:g}, for {tables}"
