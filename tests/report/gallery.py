"""One small fusion per kind of model, for the report's tests and pictures."""

from __future__ import annotations

import warnings
from dataclasses import replace
from functools import cache
from itertools import combinations

import numpy as np
from sklearn.datasets import load_digits
from sklearn.exceptions import ConvergenceWarning
from sklearn.mixture import BayesianGaussianMixture
from sklearn.neural_network import MLPClassifier

import klfusion as kf
from klfusion.fusion.settings import FuseSettings
from klfusion.objective.solution import MergePath
from klfusion.posteriors.structure import Structure

EVIL = '<script>alert("1")</script>'
WORDS = {
    subject: text.split()
    for subject, text in {
        "heart": "heart artery valve pulse pressure chest beta stent rhythm aorta",
        "lung": "lung breath asthma oxygen cough inhaler airway smoke chest oedema",
        "bone": "bone fracture joint hip knee cast surgeon density fall screw",
        "mind": "sleep mood anxiety memory therapy stress pain attention fear dream",
    }.items()
}
Silos = list[kf.Posterior]


@cache
def mixture() -> tuple[kf.Fusion, Silos]:
    """Hospitals with three or four of five kinds of patients."""
    rng = np.random.default_rng(0)
    means = np.array([[-6, 0], [0, 6], [6, 0], [0, -6], [1, 1]], dtype=float)
    shapes = rng.normal(size=(5, 2, 2)) + 1.2 * np.eye(2)
    silos = []
    for name in ["north", "south", "east", "west", "harbour", "hill", "lake"]:
        sees = rng.permutation(5)[: rng.integers(3, 5)]
        kinds = rng.choice(sees, 500)
        x = means[kinds] + np.einsum("nij,nj->ni", shapes[kinds], rng.normal(size=(500, 2)))
        model = BayesianGaussianMixture(
            n_components=len(sees), max_iter=500, n_init=3, random_state=0
        ).fit(x)
        silos.append(kf.extract(model, name=name))
    return kf.fuse(silos), silos


@cache
def topics() -> tuple[kf.Fusion, Silos]:
    """Clinics with two of four subjects and one word of their own."""
    rng = np.random.default_rng(1)
    vocabulary = sorted(set().union(*WORDS.values()))
    silos = []
    for j, subjects in enumerate(combinations(WORDS, 2)):
        known = [*vocabulary, f"clinic{j}", EVIL]
        rows = np.full((len(subjects), len(known)), 0.1)
        for row, subject in zip(rows, subjects, strict=True):
            theme = [known.index(word) for word in WORDS[subject]]
            np.add.at(row, rng.choice(theme, 900, p=rng.dirichlet(np.full(len(theme), 20.0))), 1.0)
        rows += rng.poisson(1.0, rows.shape)
        family = kf.families.Dirichlet(len(known))
        structure = Structure(
            "topics",
            {"topic_mass": rows.sum(axis=1), "doc_topic_prior": np.full(len(rows), 0.5)},
            {"vocabulary": known},
        )
        silos.append(
            kf.Posterior(
                family, rows, name=f"clinic-{j}", prior=np.full(len(known), 0.1),
                counts=rows.sum(axis=1), structure=structure,
            )
        )  # fmt: skip
    return kf.fuse(silos), silos


@cache
def hmm() -> tuple[kf.Fusion, Silos]:
    """Subjects that pass through some of six states in a cycle."""
    rng = np.random.default_rng(2)
    family = kf.families.NormalWishart(4)
    means = rng.normal(scale=4.0, size=(6, 4))
    silos = []
    for j in range(5):
        states = np.sort(rng.permutation(6)[: rng.integers(4, 7)])
        n, count = len(states), rng.uniform(80, 200, len(states))
        natural = family.natural(
            mean=means[states] + rng.normal(scale=0.1, size=(n, 4)),
            kappa=count,
            scale_inv=count[:, None, None] * np.eye(4),
            dof=count + 4,
        )
        steps = 0.85 * np.eye(n) + 0.12 * np.roll(np.eye(n), 1, axis=1) + 0.03 / n
        structure = Structure(
            "hmm",
            {
                "start": np.eye(n)[0], "start_prior": np.full(n, 0.1),
                "transition": steps * count[:, None], "transition_prior": np.full((n, n), 0.1),
            },
            {"features": ["knee", "hip", "elbow", "shoulder"]},
        )  # fmt: skip
        silos.append(
            kf.Posterior(family, natural, name=f"subject-{j}", counts=count, structure=structure)
        )
    return kf.fuse(silos), silos


@cache
def network() -> tuple[kf.Fusion, Silos]:
    """Networks for handwritten digits: four sites, each with six of the ten."""
    x, y = load_digits(return_X_y=True)
    silos = []
    for j in range(4):
        mine = np.isin(y, (np.arange(6) + 2 * j) % 10)
        net = MLPClassifier((12,), alpha=1.0, max_iter=60, random_state=0)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            net.fit(np.vstack([x[mine] / 16, np.zeros((10, 64))]), [*y[mine], *range(10)])
        arrays = {
            "fc1.weight": net.coefs_[0].T, "fc1.bias": net.intercepts_[0],
            "fc2.weight": net.coefs_[1].T, "fc2.bias": net.intercepts_[1],
        }  # fmt: skip
        mapping = {key: (value, np.full(value.shape, 0.02)) for key, value in arrays.items()}
        silos.append(kf.extract(mapping, name=f"site-{j}", activation="relu"))
    return kf.fuse(silos), silos


@cache
def plain() -> tuple[kf.Fusion, Silos]:
    """Rates of events, without a view; one silo has a hostile name."""
    rates = kf.families.Gamma()
    shapes = {"a": [30, 900], "b": [910, 32, 250], EVIL: [31, 905, 4000]}
    silos = [
        kf.Posterior(rates, rates.natural(shape=s, rate=[10.0] * len(s)), name=name)
        for name, s in shapes.items()
    ]
    return kf.fuse(silos), silos


def regression() -> tuple[kf.Fusion, Silos]:
    """Six hospitals, whose coefficients of the dose differ."""
    rng = np.random.default_rng(3)
    names = ["intercept", "age (decades)", "dose", "smoker"]
    silos = []
    for name in ("north general hospital", "south", "east", "west university", "city", "county"):
        size = rng.uniform(1.0, 5.0)
        mean = [rng.normal(), 0.3, 0.5 + 0.5 * rng.normal(), 0.4]
        mean = np.array(mean) + 0.25 * rng.normal(size=4) / np.sqrt(size)
        covariance = np.diag([0.1, 0.06, 0.05, 0.2]) / size
        counts = {"local": ["intercept"], "n_observations": round(100 * size)}
        silos.append(kf.coefficients(mean, covariance, names, name=name, **counts))
    return kf.fuse(silos, pooling="hierarchical"), silos


KINDS = {
    "mixture": mixture,
    "topics": topics,
    "hmm": hmm,
    "network": network,
    "plain": plain,
    "regression": regression,
}


def thousand_silos(n: int = 1000, size: int = 12, dim: int = 10) -> kf.Fusion:
    """A fusion of many silos, not computed by `fuse`, for the report's limits."""
    rng = np.random.default_rng(0)
    family = kf.families.NormalWishart(dim)
    labels = tuple(rng.permutation(size)[:3].astype(np.intp) for _ in range(n))
    merges = 3 * n - size
    return kf.Fusion(
        posterior=kf.Posterior(
            family,
            family.natural(
                rng.normal(size=(size, dim)),
                np.full(size, 20.0),
                np.repeat(20 * np.eye(dim)[None], size, axis=0),
                np.full(size, dim + 20.0),
            ),
            counts=rng.uniform(100, 200, size),
        ),
        silo_names=tuple(f"hospital-{i:04d}" for i in range(n)),
        labels=labels,
        divergences=tuple(rng.exponential(5.0, 3) for _ in range(n)),
        penalty=3.0,
        objective=2000.0,
        lower_bound=1990.0,
        trace=np.linspace(3000.0, 2000.0, 20),
        status=kf.Status.MAX_ITER,
        settings=FuseSettings(weights=(1.0,) * n),
        path=MergePath(
            merges=np.zeros((merges, 2), dtype=np.intp),
            ratios=np.linspace(0.0, 40.0, merges),
            divergences=np.linspace(0.0, 4000.0, merges + 1),
            n_components=3 * n - np.arange(merges + 1),
        ),
    )


def hostile(fusion: kf.Fusion) -> kf.Fusion:
    """The same fusion with markup in every untrusted text."""
    return replace(
        fusion,
        settings=replace(fusion.settings, pooling=EVIL),
        silo_names=tuple(f"{EVIL}{j}" for j in range(fusion.n_silos)),
        posterior=replace(fusion.posterior, name=EVIL, provenance={EVIL: EVIL}),
        provenance={"style": "</style><img src=x onerror=alert(1)>", "script": "</script>"},
    )
