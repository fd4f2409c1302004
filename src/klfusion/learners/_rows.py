"""Rows of any kind: arrays, tables, sparse matrices, texts; and agreed maps of them to features."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from klfusion._utils.arrays import IntArray
from klfusion._utils.checks import read_labels
from klfusion._utils.text import brief
from klfusion.errors import KLFusionError

_BATCH = 2_000  # rows whose features are held at once


def labels_of(X: Any, y: Any) -> Any:
    """One label of one kind for each row, (n,)."""
    labels, n = read_labels(y), n_rows(X)
    if labels.ndim != 1 or len(labels) != n or n == 0:
        got = f"{brief(X) if n is None else f'{n} rows'} and labels of shape {labels.shape}"
        raise KLFusionError(f"expected rows X and one label per row, got {got}")
    return labels


def numbered(labels: Any, classes: Any) -> tuple[Any, IntArray]:
    """All classes, by default those of the labels (n,), and the number of each label's class."""
    seen = np.unique(labels)
    found = seen if classes is None else read_labels(classes)
    if found.ndim != 1 or len(np.unique(found)) < len(found):
        raise KLFusionError(f"expected classes to be different labels, got {brief(classes)}")
    position = {label: k for k, label in enumerate(found.tolist())}
    unknown = [label for label in seen.tolist() if label not in position]
    if unknown:
        expected = f"expected labels among the classes {found.tolist()}"
        raise KLFusionError(f"{expected}, got {unknown} as well")
    if len(seen) < 2:
        raise KLFusionError(
            f"expected observations of at least two classes, got class {seen.tolist()[0]!r} "
            "alone, from which nothing can be learned"
        )
    return found, np.array([position[label] for label in labels.tolist()])


def n_rows(X: Any) -> int | None:
    """Number of rows of an array, a table or a list; None for anything else."""
    if getattr(X, "shape", ()):
        return int(X.shape[0])
    return len(X) if hasattr(X, "__len__") and not isinstance(X, str | dict) else None


def batches(X: Any) -> Iterator[Any]:
    """Rows, a batch at a time; those of a data frame by place, not by label."""
    n = n_rows(X)
    if n is None:
        raise KLFusionError(f"expected rows X, got {brief(X)}")
    rows = _sliced_by_place(X)
    return (rows[low : low + _BATCH] for low in range(0, n, _BATCH))


def width(X: Any) -> int | None:
    """Number of columns of numeric rows; None of others, such as texts."""
    first = _sliced_by_place(X)[:1]
    x = np.asarray(first.toarray() if hasattr(first, "toarray") else first)
    return int(x.shape[1]) if x.ndim == 2 and x.dtype.kind in "fiub" else None


def _sliced_by_place(X: Any) -> Any:
    if hasattr(X, "iloc"):
        return X.iloc
    return X.tocsr() if hasattr(X, "tocsr") else X  # not all sparse matrices can be sliced


def mapped(features: Any, X: Any) -> Any:
    """Features of rows, by a transformer, a function or a module of PyTorch."""
    if hasattr(features, "transform"):
        return features.transform(X)
    if not callable(features):
        raise KLFusionError(
            f"expected features to be a function or to have transform, got {brief(features)}"
        )
    if type(features).__module__.partition(".")[0] != "torch" and not hasattr(features, "forward"):
        return features(X)
    import torch  # noqa: PLC0415 (an extra)

    like = next(features.parameters(), torch.zeros(1))
    modes = {module: module.training for module in features.modules()}
    features.eval()  # dropout and batch statistics would make features of the same row differ
    try:
        with torch.no_grad():
            x = torch.as_tensor(np.asarray(X), dtype=like.dtype, device=like.device)
            return features(x).cpu().numpy()
    finally:
        for module, training in modes.items():
            module.training = training
