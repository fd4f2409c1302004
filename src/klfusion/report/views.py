"""The view per kind of model: ellipses, words, transitions, weights."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from klfusion._utils.arrays import FloatArray, IntArray
from klfusion._utils.intervals import DEVIATIONS
from klfusion.families import Dirichlet, GaussianObservations, Located, UncertainLocation
from klfusion.posteriors.posterior import Posterior
from klfusion.posteriors.structure import network as layers
from klfusion.posteriors.vocabularies import words

MAX_COMPONENTS = 100
_TOP_WORDS = 15
_SEARCHED_WORDS = 3000
_TOPICS_OF_WORD = 3
_MAX_STATES = 40
_MAX_COLUMNS = 64  # of the emissions
_MAX_LISTED_COLUMNS = 20  # of a component
_MAX_PIXELS = 100_000  # in total over the units
_MIN_EDGE = 0.02  # smallest transition probability drawn as an arrow
_MAX_LOCAL = 200  # ellipses
_ANGLES = np.linspace(0.0, 2 * np.pi, 37)
_RADIUS = 1.48  # standard deviations; two thirds of a Gaussian in two dimensions lie within

Local = tuple[FloatArray, IntArray]


def model_view(posterior: Posterior, local: Local | None = None) -> dict[str, Any]:
    """Data of the view of a kind of model, ``"plain"`` without one; ``local`` as `Local`."""
    kind = posterior.structure.kind if posterior.structure is not None else None
    make = _VIEWS.get(kind or "")
    view = _ellipses(posterior, local) if make is None else make(posterior)
    return {"kind": "plain"} if view is None else view


def covariances(params: dict[str, FloatArray]) -> FloatArray | None:
    """Expected covariances (n, d, d) from Gaussian parameters, else None."""
    if "scale_inv" in params and "mean" in params:
        return np.asarray(params["scale_inv"] / params["dof"].reshape(-1, 1, 1))
    if "covariance" in params or "mean" not in params:
        return params.get("covariance")
    variance = params["rate"] / params["shape"] if "rate" in params else params.get("variance")
    if variance is None:
        return None
    full = np.broadcast_to(np.reshape(variance, (len(variance), -1)), params["mean"].shape)
    return np.asarray(full[:, :, None] * np.eye(full.shape[1]))


def deviations(params: dict[str, FloatArray]) -> FloatArray | None:
    """Standard deviations (n, d) of data of a Gaussian with unknown precision, else None."""
    if "mean" not in params or not {"scale_inv", "rate"} & params.keys():
        return None
    if "rate" in params:
        return np.asarray(np.sqrt(params["rate"] / params["shape"]))
    diagonal = np.einsum("nii->ni", params["scale_inv"])
    return np.asarray(np.sqrt(diagonal / params["dof"].reshape(-1, 1)))


def _ellipses(posterior: Posterior, local: Local | None) -> dict[str, Any] | None:
    """Gaussian components in two dimensions, or in the principal plane of their means."""
    mean = posterior.params().get("mean")
    if mean is None or mean.shape[1] < 2 or covariances(posterior.params()) is None:
        return None
    mean, dim = mean[:MAX_COMPONENTS], mean.shape[1]
    weight = np.ones(len(mean)) if posterior.counts is None else posterior.counts[: len(mean)]
    weight = weight / max(weight.sum(), np.finfo(float).tiny)
    centre = weight @ mean if weight.any() else mean.mean(axis=0)
    if dim == 2:
        axes, centre = np.eye(2), np.zeros(2)
    else:
        axes = np.linalg.svd(mean - centre)[2][:2].T
        axes = axes * np.where(axes[np.abs(axes).argmax(axis=0), [0, 1]] < 0, -1.0, 1.0)
    places = (mean - centre) @ axes
    total = float(((mean - centre) ** 2).sum())
    principal = ["first principal axis of the means", "second principal axis"]
    view = {
        "kind": "mixture",
        "axes": _feature_names(posterior, 2) if dim == 2 else principal,
        "share_shown": None if dim == 2 else float((places**2).sum() / total) if total else 1.0,
        "centres": rounded(places),
        "outlines": _outlines(posterior, posterior.natural[: len(mean)], centre, axes),
        "weights": None if posterior.counts is None else rounded(weight),
        "local": [],
    }
    if local is not None:
        natural, labels = local
        shown = np.flatnonzero((labels >= 0) & (labels < len(mean)))
        shown = shown[:: max(1, -(-len(shown) // _MAX_LOCAL))]
        drawn = zip(labels[shown], _outlines(posterior, natural[shown], centre, axes), strict=True)
        view["local"] = [{"component": int(g), "outline": outline} for g, outline in drawn]
    return view


def _outlines(posterior: Posterior, natural: FloatArray, *plane: FloatArray) -> Any:
    """Ellipses (n, points, 2) in a plane that contain two thirds of each Gaussian."""
    centre, axes = plane
    params = posterior.family.params(natural)
    covariance = covariances(params)
    assert covariance is not None
    flat = np.einsum("da,ndk,kb->nab", axes, covariance, axes)
    ring = _RADIUS * np.stack([np.cos(_ANGLES), np.sin(_ANGLES)])
    places = (params["mean"] - centre) @ axes
    outlines = places[:, :, None] + np.linalg.cholesky(flat + 1e-12 * np.eye(2)) @ ring
    return rounded(outlines.swapaxes(1, 2))


def _feature_names(posterior: Posterior, dim: int) -> list[str]:
    features = posterior.structure.info.get("features") if posterior.structure else None
    if not isinstance(features, list) or len(features) != dim:
        return [f"x{i}" for i in range(dim)]
    return [str(name) for name in features]


def columns_of(posterior: Posterior) -> list[list[dict[str, Any]]] | None:
    """Of each Gaussian component and column: mean, its 95 % interval, and standard deviation."""
    family, natural = posterior.family, posterior.natural
    if not isinstance(family, GaussianObservations) or not isinstance(family, UncertainLocation):
        return None
    mean, covariance = family.observation_moments(natural)
    of_mean = family.location_covariance(natural)
    deviation, error = (
        np.sqrt(c if c.ndim == 2 else np.einsum("nii->ni", c)) for c in (covariance, of_mean)
    )
    names = _feature_names(posterior, mean.shape[1])
    info = posterior.structure.info if posterior.structure else {}
    given = info.get("units")
    units: Mapping[str, Any] = given if isinstance(given, Mapping) else {}
    low, high = mean - DEVIATIONS * error, mean + DEVIATIONS * error
    return [
        [
            {
                "name": name if units.get(name) is None else f"{name} ({units[name]})",
                "mean": short(mean[g, c]),
                "interval": [short(low[g, c]), short(high[g, c])],
                "deviation": short(deviation[g, c]),
            }
            for c, name in enumerate(names[:_MAX_LISTED_COLUMNS])
        ]
        for g in range(len(natural))
    ]


def _topics(posterior: Posterior) -> dict[str, Any] | None:
    """Top words per topic with probabilities, and top topics per word."""
    assert posterior.structure is not None
    if not isinstance(posterior.family, Dirichlet):
        return None
    known = posterior.structure.info.get("vocabulary") is not None
    numbered = [f"word {i}" for i in range(posterior.natural.shape[1])]
    vocabulary = words(posterior) if known else numbered
    probability = posterior.natural / posterior.natural.sum(axis=1, keepdims=True)
    top = np.argsort(-probability[:MAX_COMPONENTS], axis=1, kind="stable")[:, :_TOP_WORDS]
    common = np.argsort(-probability.max(axis=0), kind="stable")[:_SEARCHED_WORDS]
    best = np.argsort(-probability[:, common], axis=0, kind="stable")[:_TOPICS_OF_WORD].T
    return {
        "kind": "topics",
        "n_words": len(vocabulary),
        "topics": [
            [{"word": vocabulary[w], "probability": short(row[w])} for w in order]
            for row, order in zip(probability, top, strict=False)
        ],
        "words": [
            {"word": vocabulary[w], "topics": [[int(g), short(probability[g, w])] for g in topics]}
            for w, topics in zip(common, best, strict=True)
        ],
    }


def _hmm(posterior: Posterior) -> dict[str, Any]:
    """Transition probabilities between states, and the mean emission of each state."""
    assert posterior.structure is not None
    arrays, n = posterior.structure.arrays, posterior.n_components
    start = arrays["start"] + arrays["start_prior"]
    transition = arrays["transition"] + arrays["transition_prior"]
    rows = np.maximum(transition.sum(axis=1, keepdims=True), np.finfo(float).tiny)
    shown = slice(0, _MAX_STATES)
    transition = (transition / rows)[shown, shown]
    values, names = _emissions(posterior)
    return {
        "kind": "hmm",
        "n_not_shown": max(0, n - _MAX_STATES),
        "start": rounded((start / max(start.sum(), np.finfo(float).tiny))[shown]),
        "transition": rounded(transition),
        "min_edge": _MIN_EDGE,
        "emissions": rounded(values[shown, :_MAX_COLUMNS]),
        "columns": names[:_MAX_COLUMNS],
        "n_columns": len(names),
    }


def _emissions(posterior: Posterior) -> tuple[FloatArray, list[str]]:
    params, family, natural = posterior.params(), posterior.family, posterior.natural
    if "mean" in params:
        return params["mean"], _feature_names(posterior, params["mean"].shape[1])
    if isinstance(family, Dirichlet):
        symbols = [f"symbol {i}" for i in range(natural.shape[1])]
        return natural / natural.sum(axis=1, keepdims=True), symbols
    location = family.location(natural) if isinstance(family, Located) else family.mean(natural)
    return location, [f"x{i}" for i in range(location.shape[1])]


def _network(posterior: Posterior) -> dict[str, Any]:
    """Incoming weights of each unit, as an image if their number is a square; outgoing weights."""
    assert posterior.structure is not None
    structure, params = posterior.structure, posterior.params()
    n_in, mean = structure.info["n_in"], params["mean"]
    following = structure.arrays["mean.1"][:, :-1]  # weights of the next layer
    if layers.n_layers(structure) > 2:  # a filter has several to each unit: their sum
        following = following.reshape(len(following), len(mean), -1).sum(axis=2)
    side = int(np.sqrt(n_in))
    units = mean[: max(1, min(MAX_COMPONENTS, _MAX_PIXELS // n_in))]
    incoming = units[:, :n_in]
    scale = np.abs(incoming).max() or 1.0
    image = side * side == n_in and n_in >= 16
    return {
        "kind": "network",
        "n_in": n_in,
        "n_out": len(following),
        "activation": str(structure.info.get("activation")),
        "n_not_shown": posterior.n_components - len(units),
        "image": [side, side] if image else [1, n_in],
        "scale": short(scale),
        # 255 levels are enough for the eye and short in JSON.
        "incoming": np.rint(127 * incoming / scale).astype(int).tolist(),
        "outgoing": rounded(following[:, : len(units)].T),
    }


_View = Callable[[Posterior], dict[str, Any] | None]
_VIEWS: dict[str, _View] = {"topics": _topics, "hmm": _hmm, layers.KIND: _network}


def rounded(array: FloatArray) -> Any:
    """Nested lists of numbers with four digits; None for a number that is not finite."""
    return [rounded(row) if array.ndim > 1 else short(row) for row in array]


def short(value: float) -> float | None:
    """A number with four digits, or None if it is not finite."""
    return float(f"{value:.4g}") if np.isfinite(value) else None
