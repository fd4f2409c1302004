"""Files that load and mean something else: documents and arrays changed at random, signed anew."""

from __future__ import annotations

import copy
import math
from dataclasses import replace

import numpy as np
from sklearn.linear_model import BayesianRidge

import klfusion as kf
from klfusion.io import container, storage, strict_json
from klfusion.io import parts as _parts
from klfusion.learners import BayesianHead
from klfusion.networks.densities import ClassDensities
from klfusion.posteriors.structure import Structure

VALUES = [
    None, True, False, 0, 1, -1, 2, 5, 10**30, -0.5, 1e-300, 1e300, 0.5, "", "x", "nan", "auto",
    "-" * 500, "é", "\u0007", "<b>",
    [], {}, [1], ["x"], [[]], {"x": 1}, [0, 1], "mixture", "hmm", "robust",
]  # fmt: skip


def signed(document, arrays):
    """Bytes of a file with a correct hash."""
    document = {key: value for key, value in document.items() if key != "sha256"}
    document["sha256"] = storage._digest(document, arrays)
    text = strict_json.canonical_json(document).decode()
    return b"".join(container.encode({"klfusion": text}, arrays))


def mutated(obj, rng, changes=2):
    """Bytes of a posterior or fusion with a few random changes."""
    document, arrays = _parts.take_apart(obj)
    document, arrays = copy.deepcopy(document), dict(arrays)
    for _ in range(rng.integers(1, changes + 1)):
        if rng.random() < 0.5:
            _change_value(document, rng)
        else:
            _change_array(document, arrays, rng)
    return signed(document, arrays)


def _places(value, found):
    """Every (container, key) of a document."""
    keys = list(value) if isinstance(value, dict) else range(len(value))
    for key in keys:
        found.append((value, key))
        if isinstance(value[key], dict | list):
            _places(value[key], found)
    return found


def _change_value(document, rng):
    places = [(c, k) for c, k in _places(document, []) if k not in ("format", "version")]
    where, key = places[rng.integers(len(places))]
    choice = rng.random()
    if choice < 0.2:
        del where[key]
    elif choice < 0.4 and isinstance(where, dict):
        where[f"{key}x"] = where.pop(key)
    elif choice < 0.6 and isinstance(where[key], int | float) and math.isfinite(where[key]):
        where[key] = where[key] * [-1, 2, 0, 1000][rng.integers(4)]
    else:
        where[key] = VALUES[rng.integers(len(VALUES))]


def _change_array(document, arrays, rng):
    key = sorted(arrays)[rng.integers(len(arrays))]
    array = np.array(arrays[key])
    choice = rng.integers(9)
    with np.errstate(all="ignore"):
        if choice == 0:
            del arrays[key]
            return
        if choice == 1 and array.size:
            flat = array.reshape(-1)
            flat[rng.integers(flat.size)] *= [-1, 0, 10**9, 2][rng.integers(4)]
        elif choice == 2 and array.ndim:
            array = array[: rng.integers(len(array) + 1)]
        elif choice == 3 and array.ndim:
            array = np.concatenate([array, array])
        elif choice == 4 and array.dtype.kind == "f":
            array = array * 10.0 ** rng.uniform(-100, 100)
        elif choice == 5 and array.dtype.kind == "f" and array.size:
            array.reshape(-1)[rng.integers(array.size)] = [np.nan, np.inf, 1e308][rng.integers(3)]
        elif choice == 6:
            array = array.reshape(array.shape[::-1])
        elif choice == 7:
            arrays[f"{key}x"] = array
        elif array.ndim:
            array = array[rng.permutation(len(array))]
    arrays[key] = array


def specimens():
    """Small posteriors of every kind, by name, each as a list of silos."""
    rng, found = np.random.default_rng(0), {}
    rates, two = kf.families.Gamma(), np.ones((2, 2))

    def gammas(kind, arrays, info=None):
        silos = []
        for j in range(3):
            natural = rates.natural(np.array([30.0, 900.0]) + rng.normal(size=2), [10.0, 10.0])
            counts = np.array([30.0, 90.0]) + j
            own = {**arrays, "counts": counts} if kind == "mixture" else arrays
            around = None if kind is None else Structure(kind, own, info or {})
            prior = rates.natural([1.0], [1.0])[0]
            silos.append(kf.Posterior(rates, natural, f"s{j}", prior, counts, around))
        return silos

    found["rates"] = gammas(None, {})
    found["weights"] = gammas("mixture", {"weight_prior": 1.0}, {"features": ["age"]})
    states = {"start": two[0], "transition": two, "start_prior": two[0], "transition_prior": two}
    found["states"] = gammas("hmm", states, {"frame_weight": 0.5})
    found |= _fitted(rng)
    found["heads"] = []
    for j in range(3):
        x, y = rng.normal(size=(30, 3)), [j] * 15 + [(j + 1) % 3] * 15
        found["heads"].append(kf.extract(BayesianHead().fit(x, y), name=f"s{j}"))
    found["columns"] = [_of_columns(rng, f"s{j}") for j in range(3)]
    found["regressions"], found["coefficients"] = [], []
    for j in range(3):
        given = ([1.0, 0.5 + 0.01 * j], np.diag([0.1, 0.02]), ["intercept", "dose"])
        found["coefficients"].append(kf.coefficients(*given, name=f"s{j}"))
        x = rng.normal(size=(60, 2))
        ridge = BayesianRidge().fit(x, x @ [1.0, -2.0] + rng.normal(size=60))
        sent = kf.extract(ridge, name=f"s{j}", local=["intercept"], n_observations=60)
        found["regressions"].append(sent)
    family = kf.families.DiagonalNormal(2)
    site = {"name": "slope", "shape": [3], "support": {"kind": "real"}}
    info = {"sites": [{**site, "name": "own", "shape": [2], "axis": -2}], "shared": [site]}
    info |= {"package": "numpyro", "class": "AutoNormal"}
    found["program"] = []
    for j in range(3):
        arrays = {"slope.mean": rng.normal(size=3), "slope.variance": np.ones(3)}
        mean = np.array([[0.0, 0.0], [9.0, 9.0]]) + 0.1 * rng.normal(size=(2, 2))
        natural = family.natural(mean, 0.1 * np.ones((2, 2)))
        around = Structure("sites", arrays, info)
        found["program"].append(kf.Posterior(family, natural, f"s{j}", structure=around))
    return found


def _fitted(rng):
    from sklearn.decomposition import LatentDirichletAllocation
    from sklearn.mixture import BayesianGaussianMixture

    found = {"mixtures": [], "topics": [], "networks": [], "deep": [], "skewed": []}
    words = ["ant", "bee", "cat", "dog", "emu", "fox"]
    for j in range(3):
        x = np.array([[0.0, 0.0], [8.0, 0.0]])[rng.integers(2, size=60)] + rng.normal(size=(60, 2))
        mixture = BayesianGaussianMixture(n_components=2, random_state=0).fit(x)
        found["mixtures"].append(kf.extract(mixture, name=f"s{j}"))
        counts = rng.poisson([[5, 5, 5, 0, 0, 0], [0, 0, 0, 5, 5, 5]] * 10)
        lda = LatentDirichletAllocation(n_components=2, random_state=0).fit(counts)
        found["topics"].append(kf.extract(lda, name=f"s{j}", vocabulary=words))
        shapes = {"a.weight": (3, 4), "a.bias": (3,), "b.weight": (2, 3), "b.bias": (2,)}
        for key in ("networks", "deep"):
            if key == "deep":
                shapes = shapes | {
                    "b.weight": (3, 3),
                    "b.bias": (3,),
                    "c.weight": (2, 3),
                    "c.bias": (2,),
                }
            net = {k: (3.0 * rng.normal(size=s), np.full(s, 0.1)) for k, s in shapes.items()}
            found[key].append(kf.extract(net, name=f"s{j}", class_counts=[5.0, 6.0]))
        index = np.arange(30) % 2
        densities = ClassDensities.of_site(net["a.weight"][0], rng.normal(size=(30, 4)), index, 2)
        last, around = found["networks"][-1], found["networks"][-1].structure
        around = replace(around, arrays={**around.arrays, **densities.arrays})
        found["skewed"].append(replace(last, structure=around))
    return found


def _of_columns(rng, name):
    from klfusion.learners import Column, MixedMixture

    kind = np.arange(60) % 2
    frame = {
        "age": np.where(kind, 70.0, 40.0) + rng.normal(size=60),
        "high": np.where(kind, 150.0, 110.0) + rng.normal(size=60),
        "low": np.where(kind, 95.0, 70.0) + rng.normal(size=60),
        "sex": np.where(kind, "m", "f"),
        "visits": rng.poisson(3, 60),
        "dose": np.where(kind, 20.0 + rng.normal(size=60), 0.0),
    }
    numbers = [Column("age", "continuous", (30, 80), unit="years")]
    numbers += [Column(k, "continuous", (60, 140), block="pressure") for k in ("high", "low")]
    rest = [Column("sex", "binary", categories=("f", "m")), Column("visits", "counts", (0, 6))]
    schema = kf.Schema([*numbers, *rest, Column("dose", "semicontinuous", (10, 40))])
    return kf.extract(MixedMixture(schema, n_init=1, random_state=0).fit(frame), name=name)
