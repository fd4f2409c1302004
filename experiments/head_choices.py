"""The numbers behind `BayesianHead` and `ConvolutionalFeatures`, on training images alone.

One number at a time is changed. Heads learn from the first training images of a data set, and the
last ones are predicted.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from copy import copy
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import numpy as np
from rich.console import Console

import klfusion as kf
from experiments import data, tables
from experiments.bnn import calibration_error
from experiments.images import load
from klfusion.learners import (
    BayesianHead,
    ConvolutionalFeatures,
    FourierFeatures,
    _head,
    _highest,
    feature_maps,
)

DESCRIPTION = "the numbers behind heads on agreed features"
N_ROUNDS = 2  # of calibration
SMOOTHNESS = (3.5, 5.0, 7.0, 10.0, 100.0)  # the last hardly smooths
SIDES = {(5,): 132, (9,): 132, (15,): 132, (5, 9, 15): 44, (5, 7, 9, 11, 13, 15): 22}  # filters
DEGREES = (5, 7, 9, 15, 1000)
DIRECTIONS = (128, 256, 512, 1024)
CHANGE = (0.25, 0.5, 1.0, np.inf)
NOISE = (0.25, 0.35, 0.5, 0.7, 0.9, 1.0, 1.1, 1.3)
LENGTH_SCALE = 8.0  # of Fourier features, about the distance of two images
Row = dict[str, Any]


class Images:
    """Training images, and those that are predicted."""

    def __init__(self, name: str, x: Any, y: Any, n_train: int, n_held_out: int) -> None:
        self.name = name
        self.train, self.labels = x[:n_train], y[:n_train]
        self.held_out, self.answers = x[-n_held_out:], y[-n_held_out:]


def maps(given: Images) -> Iterator[Row]:
    """How smooth filters are, and their sizes."""
    for value in SMOOTHNESS:
        with patch.object(feature_maps, "_SMOOTHNESS", value):
            head = BayesianHead(ConvolutionalFeatures()).fit(given.train, given.labels)
            yield row(given, "sides per standard deviation", value, head, given.held_out)
    for sides, n_filters in SIDES.items():
        agreed = ConvolutionalFeatures(n_filters, sides=sides)
        head = BayesianHead(agreed).fit(given.train, given.labels)
        yield row(given, "sides", " ".join(map(str, sides)), head, given.held_out)


def links(given: Images) -> Iterator[Row]:
    """Degrees of freedom and directions of the noise; the longest step of calibration."""
    agreed = ConvolutionalFeatures()
    x, held_out = agreed.transform(given.train), agreed.transform(given.held_out)
    first = BayesianHead().fit(x, given.labels)
    swept = {"_DEGREES": ("degrees of freedom", DEGREES), "_DIRECTIONS": ("directions", DIRECTIONS)}
    for constant, (choice, values) in swept.items():
        for value in values:
            with patch.object(_highest, constant, value):
                yield row(given, choice, value, first, held_out)
    for share in CHANGE:
        head = first
        with patch.object(_head, "_LARGEST_CHANGE", share):
            for done in range(1, N_ROUNDS + 1):
                sent = head.calibration(x, given.labels, name="all")
                head = head.calibrated(kf.fuse([sent]))
                yield row(given, f"largest change, round {done}", share, head, held_out)


def noises(given: Images) -> Iterator[Row]:
    """What the noise would be multiplied by, for several maps; rounds of calibration."""
    maps_ = {
        "pixels": None,
        "Fourier": FourierFeatures(700, length_scale=LENGTH_SCALE),
        "convolutions": ConvolutionalFeatures(),
    }
    for name, agreed in maps_.items():
        parts = (given.train, given.held_out)
        x, held_out = parts if agreed is None else map(agreed.transform, parts)
        head = BayesianHead().fit(x, given.labels)
        for factor in NOISE:
            other, posterior = copy(head), head.posterior_
            other.__dict__["posterior_"] = replace(posterior, noise=factor * posterior.noise)
            yield row(given, f"noise of {name} times", factor, other, held_out)
        for done in range(1, N_ROUNDS + 1):
            head = head.calibrated(kf.fuse([head.calibration(x, given.labels, name="all")]))
            yield row(given, f"{name}, rounds of calibration", done, head, held_out)


def row(given: Images, choice: str, value: Any, head: BayesianHead, held_out: Any) -> Row:
    """Scores of a head on the images that it did not see."""
    p, y = head.predict_proba(held_out), given.answers
    return {
        "dataset": given.name, "choice": choice, "value": value,
        "accuracy": 100.0 * float((p.argmax(axis=1) == y).mean()),
        "log_likelihood": float(np.log(p[np.arange(len(y)), y]).mean()),
        "calibration_error": calibration_error(p, y),
        "confidence": 100.0 * float(p.max(axis=1).mean()),
    }  # fmt: skip


STUDIES = {"links": links, "maps": maps, "noises": noises}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of ``python -m experiments head_choices``."""
    names = ("mnist", "fashion_mnist")
    parser.add_argument("--datasets", nargs="+", choices=names, default=list(names))
    parser.add_argument("--studies", nargs="+", choices=[*STUDIES], default=[*STUDIES])
    parser.add_argument("--images", type=int, default=20_000, help="that heads learn from")
    data.add_argument(parser)


def main(args: argparse.Namespace, console: Console) -> None:
    """Run the studies, write ``results.json``, show the table."""
    rows: list[Row] = []
    for name in args.datasets:
        found = load(name, args.data_dir)
        given = Images(name, found.train, found.train_digits, args.images, 10_000)
        for study in args.studies:
            rows += STUDIES[study](given)
            (args.out / "results.json").write_text(json.dumps(rows, indent=1, default=str))
    console.print(tables.of_rows(rows))
