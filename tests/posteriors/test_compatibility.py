"""Which silos are compatible, and which are counted twice."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from sklearn.mixture import BayesianGaussianMixture

import klfusion as kf
from klfusion.errors import IncompatibleSilosError, KLFusionError
from klfusion.posteriors.structure import Structure

RATES = kf.families.Gamma()
WEIGHTS = {"counts": [1.0, 2.0], "weight_prior": 1.0}
TWO = np.ones((2, 2))
HMM = Structure(
    "hmm", {"start": TWO[0], "transition": TWO, "start_prior": TWO[0], "transition_prior": TWO}
)


def rates(name, *shapes):
    return kf.Posterior(RATES, RATES.natural(shapes, [10.0] * len(shapes)), name=name)


A, B, C, D = (rates(name, 30 + k, 900 + k) for k, name in enumerate("abcd"))


class TestFusionsOfFusions:
    def test_its_own_silos_are_not_counted_twice(self, tmp_path):
        fusion = kf.fuse([A, B])
        paths = [tmp_path / f"{name}.safetensors" for name in "abg"]
        for path, what in zip(paths, [A, B, fusion], strict=True):
            kf.save(path, what)
        message = "silos counted twice: 'a', 'b', within 'global' and beside it; expected each by"
        with pytest.raises(IncompatibleSilosError, match=message):
            kf.fuse(paths)
        with pytest.raises(IncompatibleSilosError, match=message):
            kf.fuse_files(paths, memory_limit="1GB")
        for rematch in (False, True):
            with pytest.raises(IncompatibleSilosError, match=message):
                fusion.add(fusion, rematch=rematch)

    def test_two_that_share_a_silo(self):
        north, south = kf.fuse([A, B, C]), kf.fuse([C, D])
        with pytest.raises(
            IncompatibleSilosError, match="twice: 'c', within 'south' and beside it"
        ):
            kf.fuse({"north": north, "south": south})

    def test_however_deep(self):
        top = kf.fuse({"north": kf.fuse([A, B]), "c": C})
        assert top.posterior.provenance["silos"] == ["a", "b", "c"]
        with pytest.raises(IncompatibleSilosError, match="twice: 'b', within 'all' and beside"):
            kf.fuse({"all": top, "b": B})

    def test_different_silos_may_be_fused_in_steps(self):
        whole = kf.fuse({"north": kf.fuse([A, B]), "south": kf.fuse([C, D])})
        np.testing.assert_allclose(whole.posterior.natural, kf.fuse([A, B, C, D]).posterior.natural)
        north = kf.fuse([A, B])
        assert north.add(kf.fuse([C, D])).posterior.provenance["silos"] == ["a", "b", "c", "d"]

    def test_silos_that_were_never_named(self):
        rng = np.random.default_rng(0)
        x = rng.choice([-9.0, 9.0], size=(4, 50, 1)) + rng.normal(size=(4, 50, 1))
        models = [BayesianGaussianMixture(n_components=2, random_state=0).fit(own) for own in x]
        north, south = kf.fuse(models[:2]), kf.fuse(models[2:])
        assert north.silo_names == south.silo_names == ("silo-1", "silo-2")
        assert kf.fuse({"north": north, "south": south}).n_components == 2
        with pytest.raises(IncompatibleSilosError, match="twice: 'silo-1', 'silo-2'"):
            north.add(north)

    def test_words_of_a_strange_file_are_no_names(self):
        odd = kf.Posterior(RATES, A.natural, name="odd", provenance={"silos": {"a": 1}})
        assert kf.fuse([A, odd]).n_silos == 2
        with pytest.raises(KLFusionError, match="two silos are named 'a'"):
            kf.fuse([A, B]).add(A)


class TestModelsOfDifferentKinds:
    @pytest.mark.parametrize(
        ("other", "message"),
        [
            (HMM, "'b': expected a model of kind 'mixture' as in silo 'a', got 'hmm'"),
            (
                Structure("mixture", WEIGHTS, {"covariance_type": "tied"}),
                "'b': expected covariance_type 'full' as in silo 'a', got 'tied'",
            ),
        ],
    )
    def test_one_of_each_is_named(self, other, message):
        first = Structure("mixture", WEIGHTS, {"covariance_type": "full"})
        silos = [replace(A, structure=first), replace(B, structure=other)]
        with pytest.raises(IncompatibleSilosError, match=message):
            kf.fuse(silos)


def test_other_numbers_of_columns():
    family = kf.families.NormalWishart
    silos = [
        kf.Posterior(family(d), family(d).natural(np.zeros((1, d)), [9.0], [np.eye(d)], [9.0]), n)
        for n, d in (("a", 2), ("b", 3))
    ]
    expected = (
        r"'b': expected NormalWishart\(dim=2\) as in silo 'a'.*dim=3\): silos need the same col"
    )
    with pytest.raises(kf.KLFusionError, match=expected):
        kf.fuse(silos)
