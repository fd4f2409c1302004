"""Posteriors checked together: equal to those made one by one, errors name the silo."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import klfusion as kf
from klfusion.errors import InvalidPosteriorError
from klfusion.families import Family
from klfusion.posteriors.alike import Alike, Together
from klfusion.posteriors.structure import Structure, regression, schema

WISHART = kf.families.NormalWishart(2)


def silos(m: int = 9, n: int = 3, structures: list[Structure] | None = None) -> Alike:
    rng = np.random.default_rng(0)
    dof = rng.uniform(5.0, 9.0, size=m * n)
    scale = dof[:, None, None] * np.eye(2)
    natural = WISHART.natural(rng.normal(size=(m * n, 2)), dof, scale, dof).reshape(m, n, -1)
    return Alike(
        [WISHART] * m,
        [f"silo-{j}" for j in range(m)],
        [{"j": j} for j in range(m)],
        structures or [None] * m,
        np.zeros(m, dtype=int),
        natural,
        prior=natural[:, 0].copy(),
        counts=rng.uniform(1.0, 9.0, size=(m, n)),
    )


def mixtures(m: int = 9, n: int = 3) -> list[Structure]:
    counts = np.random.default_rng(1).uniform(1.0, 9.0, size=(m, n))
    info = {"features": None}
    return [Structure("mixture", {"counts": c, "weight_prior": 1.0}, info) for c in counts]


def together(*groups: Alike) -> list[kf.Posterior]:
    checked = Together()
    made = [silo for alike in groups for silo in checked.add(alike)]
    checked.check()
    return made


def one_by_one(alike: Alike) -> list[kf.Posterior]:
    made = []
    for j, name in enumerate(alike.names):
        row = alike.natural[j], name, alike.prior[j], alike.counts[j]
        made.append(kf.Posterior(WISHART, *row, alike.structures[j], alike.provenances[j]))
    return made


@pytest.mark.parametrize("structures", [None, mixtures()])
def test_equal_to_posteriors_made_one_by_one(structures):
    alike = silos(structures=structures)
    for ours, theirs in zip(together(alike), one_by_one(alike), strict=True):
        assert (ours.name, ours.provenance) == (theirs.name, theirs.provenance)
        for key in ("natural", "prior", "counts"):
            np.testing.assert_array_equal(getattr(ours, key), getattr(theirs, key))
            assert not getattr(ours, key).flags.writeable
        if structures is not None:
            assert (ours.structure.kind, ours.structure.info) == ("mixture", {"features": None})
            for key, array in theirs.structure.arrays.items():
                np.testing.assert_array_equal(ours.structure.arrays[key], array)
                assert ours.structure.arrays[key].shape == array.shape
                assert not ours.structure.arrays[key].flags.writeable


@pytest.mark.parametrize("different", [False, True])
def test_families_are_asked_once_and_not_per_silo(monkeypatch, different):
    """Also if all silos have a form of their own."""
    asked, real = [], Family.inside

    def inside(family: Family, natural: Any) -> Any:
        asked.append(len(natural))
        return real(family, natural)

    monkeypatch.setattr(Family, "inside", inside)
    monkeypatch.setattr(Family, "check", lambda *_: pytest.fail("checked by itself"))
    alike = silos(m=100, structures=mixtures(m=100))
    together(alike._replace(forms=np.arange(100)) if different else alike)
    assert asked == [100 * 3 + 100]


def test_factors_of_different_products_are_asked_together(monkeypatch):
    asked, real = [], Family.inside
    monkeypatch.setattr(Family, "inside", lambda f, x: asked.append(f) or real(f, x))
    gamma = kf.families.Gamma()
    products = [kf.families.Product(**{name: gamma}) for name in "abc"]
    forms, natural = np.arange(3), np.ones((3, 1, 2))
    made = together(Alike(products, list("abc"), [{}] * 3, [None] * 3, forms, natural))
    assert [(own.name, own.family) for own in made] == [*zip("abc", products, strict=True)]
    assert asked == [gamma]
    natural = np.array([[[1.0, 1.0]], [[-1.0, 1.0]], [[1.0, 1.0]]])
    with pytest.raises(InvalidPosteriorError, match="silo 'b', component 0: expected b: shape > 0"):
        together(Alike(products, list("abc"), [{}] * 3, [None] * 3, forms, natural))


def test_what_silos_share_is_read_once(monkeypatch):
    seen, real = [], schema.are_texts
    monkeypatch.setattr(schema, "are_texts", lambda value: seen.append(value) or real(value))
    family = kf.families.Product(a=kf.families.Gamma())
    info = {"features": ["x"] * 10}
    structures = [
        Structure("mixture", {"counts": np.ones(1), "weight_prior": 1.0}, info) for _ in range(50)
    ]
    names = [f"silo-{j}" for j in range(50)]
    made = together(
        Alike([family] * 50, names, [{}] * 50, structures, np.zeros(50, int), np.ones((50, 1, 2)))
    )
    assert all(own.structure.info is info for own in made)
    assert len(seen) == 2


def test_one_long_info_in_many_forms_is_read_once(monkeypatch):
    """A file of 0.5 MB took 0.13 s for nine forms around one list of names."""
    seen, real = [], regression.repeated
    monkeypatch.setattr(
        regression, "repeated", lambda words: seen.append(len(words)) or real(words)
    )
    normal, info = kf.families.Normal(1), {"coordinates": ["x"], "local": [*map(str, range(999))]}
    structures = [Structure("regression", {f"own.{j}": 1.0}, info) for j in range(9)]
    names, natural = [*"abcdefghi"], np.ones((9, 1, 2))
    together(Alike([normal] * 9, names, [{}] * 9, structures, np.arange(9), natural))
    assert seen.count(999) == 1


def _change(alike: Alike, j: int, what: str) -> None:
    if what == "natural":
        alike.natural[j, 1, -1] = -1.0
    elif what == "name":
        alike.names[j] = ""
    elif what == "surrogate":
        alike.names[j] = "\ud800"
    elif what == "weights":
        counts = alike.structures[j].arrays["counts"]
        counts.flags.writeable = True
        counts[0] = -1.0
    elif what == "infinite":
        alike.counts[j, 2] = np.inf
    else:
        getattr(alike, what)[j, -1] = -1.0


@pytest.mark.parametrize("different", [False, True])
@pytest.mark.parametrize("j", [0, 4, 8])
@pytest.mark.parametrize(
    "what", ["natural", "prior", "counts", "infinite", "weights", "name", "surrogate"]
)
def test_one_bad_silo_gets_the_error_of_its_own(what, j, different):
    alike = silos(structures=mixtures())
    if different:
        alike = alike._replace(forms=np.arange(9))
    _change(alike, j, what)
    with pytest.raises(InvalidPosteriorError) as expected:
        one_by_one(alike)
    with pytest.raises(InvalidPosteriorError) as got:
        together(silos(), alike)
    assert str(got.value) == str(expected.value)


def test_zeros_in_different_places_are_no_zeros():
    """The least numbers of all silos would be zeros alone, which is refused in each."""
    start = np.array([[0.0, 1.0], [1.0, 0.0]])
    rest = {key: np.ones((2, 2)) for key in ("transition", "transition_prior")}
    structures = [Structure("hmm", {"start": own, "start_prior": own, **rest}) for own in start]
    made = together(silos(m=2, n=2, structures=structures))
    assert [own.structure.arrays["start_prior"].tolist() for own in made] == start.tolist()


@pytest.mark.parametrize("prior, message", [(0.0, None), (-1.0, "no negative eigenvalue, got -1")])
def test_a_prior_of_a_regression_may_be_flat(prior, message):
    normal = kf.families.Normal(1)
    natural = np.stack([normal.natural([[0.0]], [[[1.0]]])] * 3)
    structures = [Structure("regression", {}, {"coordinates": ["x"], "local": []})] * 3
    priors = np.array([[0.0, 0.0], [0.0, prior], [0.0, 0.0]])
    alike = Alike(
        [normal] * 3, list("abc"), [{}] * 3, structures, np.zeros(3, int), natural, prior=priors
    )
    if message is None:
        assert [own.name for own in together(alike)] == ["a", "b", "c"]
    else:
        with pytest.raises(InvalidPosteriorError, match=f"silo 'b'.*{message}"):
            together(alike)


def test_a_bad_row_takes_the_time_of_few(monkeypatch):
    """Cholesky factors of single matrices are slow: those of one block alone are made."""
    made, real = [], np.linalg.cholesky
    monkeypatch.setattr(np.linalg, "cholesky", lambda x: made.append(len(x)) or real(x))
    natural = np.tile(WISHART.natural(np.zeros((1, 2)), [5.0], np.eye(2)[None], [5.0]), (9_000, 1))
    natural[5:, 3:6] *= -1.0
    with pytest.raises(InvalidPosteriorError, match="component 5: expected"):
        kf.Posterior(WISHART, natural)
    assert len(made) < 3_000
