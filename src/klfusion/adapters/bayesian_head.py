"""`klfusion.learners.BayesianHead`: classes are named components that share a scatter."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from klfusion.adapters import _library
from klfusion.adapters._library import class_names, classes_of
from klfusion.errors import KLFusionError
from klfusion.families import IsotropicNormalGamma
from klfusion.families.triangles import pack, unpack
from klfusion.learners import BayesianHead
from klfusion.learners._head import Softmax, Statistics
from klfusion.learners.feature_maps import MAPS
from klfusion.posteriors.posterior import Posterior
from klfusion.posteriors.structure import head

_OF_NETWORK = "FusedNetworkFeatures"  # of `klfusion.updates.heads`
_AGREES = 1e-6  # relative difference of two sums of squares that rounding explains


def extract(model: Any, name: str) -> Posterior:
    """Counts, sums and squared norms by class on top of a prior worth one row; the scatter."""
    _library.check_fitted(model, "statistics_")
    total = model.statistics_
    names, kind = class_names(model.classes_)
    d = total.sums.shape[1]
    info = {
        "components": names,
        "type": kind,
        "map": _described(model.features),
        "n_inputs": model.n_inputs_,
        "features": _library.feature_names(model),
    }
    arrays = {
        head.ROWS: np.array([total.counts.sum()]),
        head.MEAN: total.mean,
        head.SCATTER: pack(total.scatter),
        head.PROBE: model.probe(),
    }
    if model.softmax_ is not None:
        arrays[head.CALIBRATION] = model.softmax_.coefficients
    family = IsotropicNormalGamma(d)
    added = [total.sums, total.counts[:, None], total.squares[:, None], d * total.counts[:, None]]
    prior = np.concatenate([np.zeros(d), [1.0, d, d]])
    structure, source = _library.origin("klfusion", "BayesianHead", head.KIND, arrays, info)
    natural = prior + np.concatenate(added, axis=1)
    return Posterior(family, natural, name, prior, total.counts, structure, source)


def _described(features: Any) -> dict[str, Any]:
    """The feature map as JSON; of one that is not ours, its class alone."""
    kind = getattr(features, "__qualname__", type(features).__name__)
    if MAPS.get(kind) is not type(features):
        return {"class": kind}
    settings = {key: _plain(value) for key, value in features.get_params().items()}
    return {"class": kind, "settings": settings}


def _plain(value: Any) -> Any:
    """A setting as a file has it: lists and numbers of Python."""
    if isinstance(value, Sequence):
        return [*map(_plain, value)]
    return value.item() if isinstance(value, np.generic) else value


def rebuild(posterior: Posterior) -> Any:
    """A fitted `BayesianHead`; a map that is not ours has to be set as its ``features``."""
    expected = "a head with its scatter and its prior"
    structure, prior = _library.structure_and_prior(posterior, expected, head.SCATTER)
    family, info = posterior.family, structure.info
    if not isinstance(family, IsotropicNormalGamma):
        raise KLFusionError(f"{posterior.name!r}: expected {expected}, got {posterior.family}")
    labels, d = classes_of(info), family.dim
    order = np.argsort(labels)  # as numpy sorts classes
    added = (posterior.natural - prior)[order]
    scatter, mean = unpack(structure.arrays[head.SCATTER], d), structure.arrays[head.MEAN]
    total = Statistics(added[:, d].copy(), added[:, :d].copy(), added[:, d + 1].copy(), scatter)
    trace = float(np.trace(scatter) + structure.arrays[head.ROWS][0] * mean @ mean)
    squares, rows = float(total.squares.sum()), float(structure.arrays[head.ROWS][0])
    if not (total.counts > 0).all():
        got = f"got {total.counts.min():.6g}"
        raise KLFusionError(f"{posterior.name!r}: expected rows of every class, {got}")
    # Each silo has a row at least, and adds the rounding of its prior.
    rounding = rows * np.finfo(np.float64).eps * float(prior[d + 1])
    agrees = abs(trace - squares) <= _AGREES * trace + rounding
    if not (agrees and abs(rows - total.counts.sum()) <= _AGREES * rows):
        raise KLFusionError(
            f"{posterior.name!r}: expected the scatter of the rows of all classes, got others: "
            "heads are fused with pooling 'product', without weights and with every class"
        )
    model = BayesianHead(_map_of(info["map"]))
    model.set_statistics(labels[order], total, info["n_inputs"])
    model.feature_names_in_ = info.get("features")
    model.expect(structure.arrays[head.PROBE])
    if head.CALIBRATION in structure.arrays:
        model.softmax_ = Softmax(structure.arrays[head.CALIBRATION].copy())
    return model


def _map_of(described: Any) -> Any:
    kind = described["class"]
    if kind == "NoneType":
        return None
    if kind in MAPS and "settings" in described:
        return MAPS[kind](**described["settings"])
    return _Missing(kind)


class _Missing:
    """Stands for a map that the file names only."""

    def __init__(self, kind: str) -> None:
        self.kind = kind

    def transform(self, X: Any) -> Any:
        """Refuse."""
        del X
        how = "set it as features of this head, as in head.features = transformer"
        if self.kind == _OF_NETWORK:
            how = "kf.refit_head(fusion, posterior) gives the head on the fused network"
        raise KLFusionError(f"expected the agreed feature map, a {self.kind}: {how}")
