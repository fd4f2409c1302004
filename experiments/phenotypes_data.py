"""A simulated consortium with known phenotypes, and heart disease with all of its columns."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import klfusion as kf
from experiments.data import find
from klfusion.learners import Column

Frame = dict[str, NDArray[Any]]
Rng = np.random.Generator
N_PHENOTYPES = 5
_SITES = (3, 5, 10, 20)
_PATIENTS = (150, 400)  # of a site
_TEST = 50  # patients of each site
_MISSING = (0.1, 0.3)  # share of cells
_NEVER = 1 / 3  # share of sites that never measured the column
_SPREAD = 1.2  # of phenotypes' means, in standard deviations of the reference range
_EXTREME = 0.7  # concentration of shares of categories: below 1, most are near 0 or 1
_NAN = float("nan")

SCHEMA = kf.Schema(
    (
        Column("age", "continuous", (30.0, 80.0), unit="years"),
        Column("pressure", "continuous", (90.0, 140.0), unit="mmHg"),
        Column("cholesterol", "continuous", (130.0, 250.0), unit="mg/dl"),
        Column("creatinine", "continuous", (0.5, 1.2), unit="mg/dl"),
        Column("haemoglobin", "continuous", (12.0, 17.0), unit="g/dl"),
        Column("bmi", "continuous", (18.0, 30.0), unit="kg/m2"),
        Column("sex", "binary", categories=("f", "m")),
        Column("diabetes", "binary", categories=("no", "yes")),
        Column("smoker", "binary", categories=("no", "yes")),
        Column("pain", "categorical", categories=("typical", "atypical", "other", "none")),
        Column("visits", "counts", (0.0, 6.0)),
        Column("nyha", "ordered", categories=(1, 2, 3, 4)),
    )
)


@dataclass(frozen=True)
class Consortium:
    """Patients of all sites, with missing cells; test patients with what is missing."""

    schema: kf.Schema
    train: dict[str, Frame]
    test: Frame
    test_labels: NDArray[np.intp]
    truth: Frame  # of the test patients, complete
    n_phenotypes: int  # that occur

    @classmethod
    def drawn(cls, seed: int) -> Consortium:
        """A random consortium."""
        rng = np.random.default_rng(seed)
        draw = [_phenotype(rng) for _ in range(N_PHENOTYPES)]
        n_sites, rate = int(rng.choice(_SITES)), float(rng.uniform(*_MISSING))
        never = str(rng.choice(SCHEMA.names))
        train, test, truth, labels, seen = {}, [], [], [], set()
        for number in range(n_sites):
            own = rng.permutation(N_PHENOTYPES)[: int(rng.integers(2, 5))]
            seen |= set(own.tolist())
            shares = rng.dirichlet(np.full(len(own), 5.0))
            n = int(rng.integers(*_PATIENTS))
            of = rng.choice(own, n + _TEST, p=shares)
            rows = _patients(rng, draw, of)
            measured = {name: rng.random(len(of)) >= rate for name in SCHEMA.names}
            if rng.random() < _NEVER:
                measured[never][:] = False
            lacking = {name: _without(rows[name], ~measured[name]) for name in SCHEMA.names}
            train[f"site {number}"] = _with_cells(_rows(lacking, slice(n)))
            test.append(_rows(lacking, slice(n, None)))
            truth.append(_rows(rows, slice(n, None)))
            labels.append(of[n:])
        every = np.concatenate(labels)
        return cls(SCHEMA, train, joined(test), every, joined(truth), len(seen))

    def error(self, imputed: Frame) -> float:
        """Mean over columns: squared errors over the variance, or the share of wrong categories."""
        found = []
        for column in self.schema:
            lacking = np.isnan(column.encoded(self.test[column.name]))
            true, guess = (
                column.encoded(frame[column.name])[lacking] for frame in (self.truth, imputed)
            )
            if column.is_numeric:
                variance = float(column.encoded(self.truth[column.name]).var())
                found.append(float(np.mean((true - guess) ** 2)) / variance)
            else:
                found.append(float(np.mean(true != guess)))
        return float(np.mean(found))


def _phenotype(rng: Rng) -> dict[str, Any]:
    """Parameters of each column."""
    out: dict[str, Any] = {}
    for column in SCHEMA:
        if column.kind == "continuous":
            mean = column.centre + _SPREAD * column.scale * rng.normal()
            out[column.name] = mean, column.scale * rng.uniform(0.5, 1.0)
        elif column.kind == "counts":
            out[column.name] = rng.gamma(1.0, column.centre)
        else:
            out[column.name] = rng.dirichlet(np.full(len(column.categories), _EXTREME))
    return out


def _patients(rng: Rng, draw: list[dict[str, Any]], of: NDArray[np.intp]) -> Frame:
    out: Frame = {}
    for column in SCHEMA:
        own = [draw[k][column.name] for k in of]
        if column.kind == "continuous":
            mean, deviation = np.array(own).T
            out[column.name] = rng.normal(mean, deviation)
        elif column.kind == "counts":
            out[column.name] = rng.poisson(own).astype(float)
        else:
            codes = [rng.choice(len(p), p=p) for p in own]
            out[column.name] = np.array(column.categories, dtype=object)[codes]
    return out


def _without(values: NDArray[Any], lacking: NDArray[np.bool_]) -> NDArray[Any]:
    out = values.copy()
    out[lacking] = _NAN
    return out


def _rows(frame: Frame, rows: Any) -> Frame:
    return {name: values[rows] for name, values in frame.items()}


def _with_cells(frame: Frame) -> Frame:
    """Without rows that have no measured cell."""
    there = ~np.isnan(SCHEMA.encoded(frame)).all(axis=1)
    return _rows(frame, there)


def joined(frames: list[Frame]) -> Frame:
    """Rows of all."""
    return {name: np.concatenate([f[name] for f in frames]) for name in frames[0]}


def split(frame: Frame, rng: Rng, share: float = 0.34) -> tuple[Frame, Frame]:
    """Rows to fit and to hold out."""
    order = rng.permutation(len(next(iter(frame.values()))))
    n = round(share * len(order))
    return _rows(frame, order[n:]), _rows(frame, order[:n])


def dealt(frame: Frame, n_sites: int, rng: Rng) -> list[Frame]:
    """Rows dealt to sites at random."""
    order = rng.permutation(len(next(iter(frame.values()))))
    return [_rows(frame, own) for own in np.array_split(order, n_sites)]


# Heart disease --------------------------------------------------------------------------------

HOSPITALS = ("cleveland", "hungarian", "switzerland", "va")
# Ranges are clinical ones, not the data's; codes are those of heart-disease.names.
HEART_SCHEMA = kf.Schema(
    (
        Column("age", "continuous", (30.0, 75.0), unit="years"),
        Column("sex", "binary", categories=("female", "male")),
        Column(
            "chest pain", "categorical", categories=("typical", "atypical", "non-anginal", "none")
        ),
        Column("resting pressure", "continuous", (100.0, 170.0), unit="mmHg"),
        Column("cholesterol", "continuous", (150.0, 350.0), unit="mg/dl"),
        Column("fasting sugar above 120", "binary", categories=("no", "yes")),
        Column("resting ecg", "categorical", categories=("normal", "ST-T", "hypertrophy")),
        Column("maximal heart rate", "continuous", (90.0, 190.0), unit="beats/min"),
        Column("exercise angina", "binary", categories=("no", "yes")),
        Column("ST depression", "semicontinuous", (-1.0, 4.0), unit="mm"),
        Column("ST slope", "ordered", categories=("up", "flat", "down")),
        Column("vessels", "ordered", categories=(0, 1, 2, 3)),
        Column("thallium scan", "categorical", categories=("normal", "fixed", "reversible")),
    )
)
_CODES: dict[int, dict[int, Any]] = {
    1: {0: "female", 1: "male"},
    2: {1: "typical", 2: "atypical", 3: "non-anginal", 4: "none"},
    5: {0: "no", 1: "yes"},
    6: {0: "normal", 1: "ST-T", 2: "hypertrophy"},
    8: {0: "no", 1: "yes"},
    10: {1: "up", 2: "flat", 3: "down"},
    11: {0: 0, 1: 1, 2: 2, 3: 3},
    12: {3: "normal", 6: "fixed", 7: "reversible"},
}
_ZERO_IS_MISSING = (3, 4)  # nobody has a pressure or cholesterol of zero


def heart(data_dir: Path | None) -> dict[str, Frame]:
    """Heart disease at four hospitals, missing cells as NaN."""
    out = {}
    for name in HOSPITALS:
        path = find(f"hospitals/heart/processed.{name}.data", data_dir)
        table = np.genfromtxt(path, delimiter=",", missing_values="?", filling_values=np.nan)
        frame: Frame = {}
        for k, column in enumerate(HEART_SCHEMA):
            values = table[:, k]
            if k in _ZERO_IS_MISSING:
                values = np.where(values == 0, np.nan, values)
            if k in _CODES:
                codes = [_CODES[k].get(v, _NAN) for v in values.tolist()]
                values = np.array(codes, dtype=object)
            frame[column.name] = values
        out[name] = frame
    return out
