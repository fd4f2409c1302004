"""What entrants of `experiments.skew` get and give."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from experiments.images import FloatArray, IntArray

Predict = Callable[[FloatArray], Any]  # images (n, pixels) to probabilities (n, classes)


@dataclass(frozen=True, eq=False)
class Problem:
    """Images (n, pixels) in [0, 1] of one data set; ``outside`` are test images of the other."""

    name: str
    train: FloatArray
    labels: IntArray
    test: FloatArray
    test_labels: IntArray
    outside: FloatArray


class Split(NamedTuple):
    """The training rows of each site; sites without rows are left out."""

    problem: Problem
    partition: str
    rows: list[IntArray]
    seed: int
    first_seed: int  # costly methods may run for this one alone
    quick: bool


class Result(NamedTuple):
    """What a method predicts, and the bytes that its largest site sends."""

    method: str
    predict_proba: Predict
    n_bytes: int


Entrant = Callable[[Split], Iterator[Result]]
