"""Heart disease, breast cancer and trauma: patients by hospital, as FLamby and BFI prepare them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.model_selection import train_test_split

from experiments.data import find

IntArray = NDArray[np.intp]
HEART = ("cleveland", "hungarian", "switzerland", "va")
REGIONS = ("Northeast", "South", "West", "Midwest", "Europe", "Canada")
FLAMBY_SEED = 43  # of FLamby's split of the heart disease patients
_DROPPED = [10, 11, 12]  # columns of heart disease that FLamby leaves out
_CODES = [2, 6]  # columns that are one-hot encoded without their first level
_TEST = 0.34  # share of patients held out
_YEARS_PER_UNIT = 10.0  # age in decades, so that coefficients have comparable scales
# Names of the columns of heart disease that stay, from heart-disease.names.
_NAMES = {0: "age", 1: "sex", 3: "pressure", 4: "cholesterol", 5: "sugar", 7: "rate", 8: "angina"}
_NAMES |= {9: "depression", 2: "pain", 6: "ecg"}


@dataclass(frozen=True)
class Hospital:
    """Patients of one hospital: columns, and the outcome (survival: time and event)."""

    x: pd.DataFrame
    y: Any

    def some(self, rows: IntArray) -> Hospital:
        """Some of the patients."""
        return Hospital(self.x.iloc[rows].reset_index(drop=True), self.y[rows])


Hospitals = dict[str, Hospital]
Split = tuple[Hospitals, Hospitals]


def heart(data_dir: Path | None) -> Hospitals:
    """Heart disease at four hospitals; the outcome is 0 or 1."""
    files = {n: find(f"hospitals/heart/processed.{n}.data", data_dir) for n in HEART}
    frames = {n: pd.read_csv(path, header=None, na_values="?") for n, path in files.items()}
    kept = [frame.drop(columns=_DROPPED).dropna() for frame in frames.values()]
    joined = pd.concat(kept, keys=HEART)
    x = joined.drop(columns=[13]).rename(columns=_NAMES)
    x = pd.get_dummies(x, columns=[_NAMES[c] for c in _CODES], drop_first=True).astype(float)
    outcome = (joined[13] > 0).astype(int)
    return {n: Hospital(x.loc[n].reset_index(drop=True), outcome.loc[n].to_numpy()) for n in HEART}


def split_heart(hospitals: Hospitals, seed: int) -> Split:
    """FLamby's split with any seed; columns standardised per hospital on its training rows."""
    train, test = split_rows(hospitals, seed)
    for name, own in train.items():
        mean, deviation = own.x.mean(), own.x.std()
        deviation = deviation.where(deviation > 0, 1.0)
        for part in (train, test):
            part[name] = Hospital((part[name].x - mean) / deviation, part[name].y)
    return train, test


def split_rows(hospitals: Hospitals, seed: int) -> Split:
    """FLamby's split with any seed, columns as they are."""
    train, test = {}, {}
    for name, own in hospitals.items():
        few = np.bincount(own.y, minlength=2).min() <= 2
        rows = train_test_split(
            np.arange(len(own.y)),
            test_size=_TEST,
            train_size=1.0 - _TEST,
            random_state=seed,
            shuffle=True,
            stratify=None if few else own.y,
        )
        train[name], test[name] = own.some(rows[0]), own.some(rows[1])
    return train, test


def breast_cancer(data_dir: Path | None) -> tuple[Hospitals, Split]:
    """Survival of breast cancer in six regions, (n, 2) of time and event, and FLamby's split."""
    frame = pd.read_csv(find("hospitals/tcga_brca/brca.csv", data_dir))
    folds = pd.read_csv(find("hospitals/tcga_brca/train_test_split.csv", data_dir))
    frame = frame.merge(folds, on="pid")
    x = frame.drop(columns=["pid", "E", "T", "fold", "fold2"]).astype(float)
    x["age_at_index"] /= _YEARS_PER_UNIT
    y, region = frame[["T", "E"]].to_numpy(float), frame["fold2"].str[-1].astype(int)
    every, train, test = {}, {}, {}
    for number, name in enumerate(REGIONS):
        rows = np.flatnonzero(region == number)
        every[name] = Hospital(x, y).some(rows)
        held_out = (frame["fold"].iloc[rows] == "test").to_numpy()
        train[name] = every[name].some(np.flatnonzero(~held_out))
        test[name] = every[name].some(np.flatnonzero(held_out))
    return every, (train, test)


def split_survival(hospitals: Hospitals, seed: int) -> Split:
    """A fifth of the patients of each region held out, by event where there are enough."""
    train, test = {}, {}
    for name, own in hospitals.items():
        events = own.y[:, 1].astype(int)
        rows = train_test_split(
            np.arange(len(events)),
            test_size=0.2,
            random_state=seed,
            stratify=events if np.bincount(events, minlength=2).min() > 1 else None,
        )
        train[name], test[name] = own.some(rows[0]), own.some(rows[1])
    return train, test


def trauma(data_dir: Path | None) -> Hospitals:
    """Mortality of trauma patients at three hospitals, columns scaled as in BFI's example."""
    frame = pd.read_csv(find("hospitals/trauma/trauma.csv", data_dir))
    x = frame[["sex", "age", "ISS", "GCS"]].astype(float)
    scaled = ["age", "ISS", "GCS"]
    x[scaled] = (x[scaled] - x[scaled].mean()) / x[scaled].std()
    every = Hospital(x, frame["mortality"].to_numpy())
    numbers = frame["hospital"].to_numpy()
    return {f"hospital {k}": every.some(np.flatnonzero(numbers == k)) for k in (1, 2, 3)}


def published(data_dir: Path | None, task: str, test: str = "client_test") -> dict[str, float]:
    """FLamby's results, ``"heart"`` or ``"tcga"``: means over seeds, and over hospitals' tests."""
    files = [find(f"hospitals/flamby_results/{task}_seed{s}.csv", data_dir) for s in range(42, 47)]
    rows = pd.concat([pd.read_csv(path) for path in files])
    rows = rows[rows["Test"].str.startswith(test)]
    means = rows.groupby("Method")["Metric"].mean()
    return {str(name): float(value) for name, value in means.items() if "Local" not in str(name)}
