"""What `fuse` takes for a silo, and how silos get their names."""

from __future__ import annotations

import re

import numpy as np
import pytest
from sklearn.mixture import BayesianGaussianMixture

import klfusion as kf
from klfusion._fuse import read_silos
from klfusion.errors import IncompatibleSilosError, KLFusionError
from tests.helpers.silos import rate_silos


def test_models_posteriors_files_and_fusions(tmp_path):
    (silo, *_), _ = rate_silos(2)
    kf.save(tmp_path / "saved", silo)
    model = BayesianGaussianMixture(n_components=2, random_state=0).fit(
        np.random.default_rng(0).normal(size=(40, 1))
    )
    fusion = kf.fuse(rate_silos(2)[0])
    read = read_silos([silo, str(tmp_path / "saved"), tmp_path / "saved", fusion, model])
    for other in read[:3]:
        assert other.name == silo.name
        np.testing.assert_array_equal(other.natural, silo.natural)
    np.testing.assert_array_equal(read[3].natural, fusion.posterior.natural)
    assert read[4].name == "silo-5"  # a model has no name: its place among all
    assert [silo.name for silo in read_silos([model, model], number=7)] == ["silo-8", "silo-9"]


def test_names_of_a_mapping_win():
    silos, _ = rate_silos(2)
    assert [s.name for s in read_silos({"north": silos[0], "south": silos[1]})] == [
        "north",
        "south",
    ]


@pytest.mark.parametrize(
    ("models", "message"),
    [
        ([], "expected at least one silo, got none"),
        ({}, "expected at least one silo, got none"),
        ("one.safetensors", "expected a list or mapping of silos, got a single str: put it into a"),
        (3, "got a single int"),
        ({"": None}, "expected silo names to be non-empty strings, got ''"),
        ({1: None}, "expected silo names to be non-empty strings, got 1"),
    ],
)
def test_what_is_no_list_of_silos(models, message):
    expected = IncompatibleSilosError if "at least one" in message else KLFusionError
    with pytest.raises(expected, match=re.escape(message)):
        read_silos(models)
