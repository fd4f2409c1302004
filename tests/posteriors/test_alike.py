"""Posteriors of one form: checked at once, equal to those made one by one, errors name the silo."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import klfusion as kf
from klfusion.errors import InvalidPosteriorError
from klfusion.families import Family
from klfusion.posteriors.alike import Alike
from klfusion.posteriors.structure import Structure, schema

WISHART = kf.families.NormalWishart(2)


def silos(m: int = 9, n: int = 3, structure: Structure | None = None) -> Alike:
    rng = np.random.default_rng(0)
    dof = rng.uniform(5.0, 9.0, size=m * n)
    scale = dof[:, None, None] * np.eye(2)
    natural = WISHART.natural(rng.normal(size=(m * n, 2)), dof, scale, dof).reshape(m, n, -1)
    return Alike(
        WISHART,
        [f"silo-{j}" for j in range(m)],
        [{"j": j} for j in range(m)],
        structure,
        natural,
        prior=natural[:, 0].copy(),
        counts=rng.uniform(1.0, 9.0, size=(m, n)),
    )


def mixture(m: int = 9, n: int = 3) -> Structure:
    counts = np.random.default_rng(1).uniform(1.0, 9.0, size=(m, n))
    return Structure("mixture", {"counts": counts, "weight_prior": np.ones(m)}, {"features": None})


def one_by_one(alike: Alike) -> list[kf.Posterior]:
    made = []
    for j, name in enumerate(alike.names):
        own = alike.structure
        if own is not None:
            own = replace(own, arrays={key: array[j] for key, array in own.arrays.items()})
        row = alike.natural[j], name, alike.prior[j], alike.counts[j]
        made.append(kf.Posterior(alike.family, *row, own, alike.provenances[j]))
    return made


@pytest.mark.parametrize("structure", [None, mixture()])
def test_equal_to_posteriors_made_one_by_one(structure):
    alike = silos(structure=structure)
    for ours, theirs in zip(alike.posteriors(), one_by_one(alike), strict=True):
        assert (ours.name, ours.provenance) == (theirs.name, theirs.provenance)
        for key in ("natural", "prior", "counts"):
            np.testing.assert_array_equal(getattr(ours, key), getattr(theirs, key))
            assert not getattr(ours, key).flags.writeable
        if structure is not None:
            assert (ours.structure.kind, ours.structure.info) == ("mixture", {"features": None})
            for key, array in theirs.structure.arrays.items():
                np.testing.assert_array_equal(ours.structure.arrays[key], array)
                assert ours.structure.arrays[key].shape == array.shape
                assert not ours.structure.arrays[key].flags.writeable


def test_families_are_asked_once_and_not_per_silo(monkeypatch):
    asked, real = [], Family.check

    def check(family: Family, natural: Any, *where: str) -> None:
        asked.append(len(natural))
        real(family, natural, *where)

    monkeypatch.setattr(Family, "check", check)
    silos(m=100, structure=mixture(m=100)).posteriors()
    assert len(asked) == 4
    assert sum(asked) == 100 * 3 + 100 + 3 + 1  # of all, and of one silo by itself


def test_what_silos_share_is_read_once(monkeypatch):
    seen, real = [], schema._are_texts
    monkeypatch.setattr(schema, "_are_texts", lambda value: seen.append(value) or real(value))
    family = kf.families.Product(a=kf.families.Gamma())
    info = {"features": ["x"] * 10}
    structure = Structure(
        "mixture", {"counts": np.ones((50, 1)), "weight_prior": np.ones(50)}, info
    )
    names = [f"silo-{j}" for j in range(50)]
    made = Alike(family, names, [{}] * 50, structure, np.ones((50, 1, 2))).posteriors()
    assert all(own.structure.info is info for own in made)
    assert len(seen) == 2


def _change(alike: Alike, j: int, what: str) -> None:
    if what == "natural":
        alike.natural[j, 1, -1] = -1.0
    elif what == "name":
        alike.names[j] = ""
    elif what == "surrogate":
        alike.names[j] = "\ud800"
    elif what == "weights":
        alike.structure.arrays["counts"].flags.writeable = True
        alike.structure.arrays["counts"][j, 0] = -1.0
    elif what == "infinite":
        alike.counts[j, 2] = np.inf
    else:
        getattr(alike, what)[j, -1] = -1.0


@pytest.mark.parametrize("j", [0, 4, 8])
@pytest.mark.parametrize(
    "what", ["natural", "prior", "counts", "infinite", "weights", "name", "surrogate"]
)
def test_one_bad_silo_gets_the_error_of_its_own(what, j):
    alike = silos(structure=mixture())
    _change(alike, j, what)
    with pytest.raises(InvalidPosteriorError) as expected:
        one_by_one(alike)
    with pytest.raises(InvalidPosteriorError) as got:
        alike.posteriors()
    assert str(got.value) == str(expected.value)


def test_zeros_in_different_places_are_no_zeros():
    """The least numbers of all silos would be zeros alone, which is refused in each."""
    start = np.array([[0.0, 1.0], [1.0, 0.0]])
    arrays = {"start": start, "start_prior": start}
    arrays |= {key: np.ones((2, 2, 2)) for key in ("transition", "transition_prior")}
    both = replace(silos(m=2, n=2), structure=Structure("hmm", arrays))
    made = [own.structure.arrays["start_prior"].tolist() for own in both.posteriors()]
    assert made == start.tolist()


def test_a_prior_of_a_regression_may_be_flat():
    normal = kf.families.Normal(1)
    natural = np.stack([normal.natural([[0.0]], [[[1.0]]])] * 3)
    info = {"coordinates": ["x"], "local": []}
    flat = Alike(
        normal, list("abc"), [{}] * 3, Structure("regression", {}, info), natural,
        prior=np.zeros((3, 2)),
    )  # fmt: skip
    assert [own.name for own in flat.posteriors()] == ["a", "b", "c"]
