"""Files of format version 1, whose fusions held their method as text."""

import ast
from typing import Any

_METHODS = {"Auto": "auto", "Exact": "binary", "Homogeneous": "homogeneous", "Relaxed": "relaxed"}
_LONGEST = 2_000  # characters that are parsed; every method was written in a few hundred
_SETTINGS = ("silo_weights", "pooling", "min_support", "divergence", "variation", "certainty")


def upgraded(document: dict[str, Any]) -> dict[str, Any]:
    """The document as version 2 has it; what is malformed stays, to be refused there."""
    fusion = document.get("fusion")
    if not isinstance(fusion, dict) or not isinstance(fusion.get("method"), str):
        return document
    provenance = fusion.get("provenance")
    known = provenance if isinstance(provenance, dict) else {}
    names = fusion.get("silo_names")
    method, size = _method(fusion["method"], known.get("divergence", "kl"))
    settings = {"method": method, "n_components": [size], "random_state": 0}
    settings["weights"] = known.get("silo_weights", [1.0] * len(names or []))
    defaults = {"pooling": "average", "min_support": 1, "certainty": None, "variation": None}
    settings |= {key: known.get(key, default) for key, default in defaults.items()}
    rest = {key: value for key, value in fusion.items() if key != "method"}
    if isinstance(provenance, dict):
        rest["provenance"] = {k: v for k, v in known.items() if k not in _SETTINGS}
    return {**document, "fusion": {**rest, "settings": settings, "unmatched": {}}}


def _method(text: str, divergence: Any) -> tuple[dict[str, Any], Any]:
    """Configuration and size of a method written as ``Name(setting=value, ...)``."""
    try:
        call = ast.parse(text[:_LONGEST], mode="eval").body
        assert isinstance(call, ast.Call) and isinstance(call.func, ast.Name)
        given = {str(k.arg): ast.literal_eval(k.value) for k in call.keywords}
        kind = call.func.id
    except (AssertionError, MemoryError, RecursionError, SyntaxError, ValueError):
        return {"name": text}, None
    size, penalty = given.pop("n_components", None), given.pop("penalty", "auto")
    within, loss = given.pop("within_silo_merging", False), given.pop("max_loss", None)
    config = {**given, "divergence": divergence}
    if kind == "Units":
        return {"name": "networks", "penalty": penalty, **config}, size
    if kind != "Auto":
        if kind != "Homogeneous":
            config["penalty"] = penalty
        return {"name": _METHODS.get(kind, kind), **config}, size
    config["topics"] = False
    if within or loss is not None:
        loss = 0.02 if loss is None else loss
        return {"name": "max-loss", "max_loss": loss, "within_silos": within, **config}, size
    if penalty != "auto":
        return {"name": "penalised", "penalty": penalty, **config}, size
    return {"name": "auto", **config}, size
