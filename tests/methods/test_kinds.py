"""The kind of model chooses how plans are compared, not the family of its components."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import klfusion as kf
from klfusion.families import Product
from klfusion.model_size.preparation import prepare
from klfusion.out_of_core.files import Files
from klfusion.posteriors.structure import Structure
from tests.golden.makers import categorical_chains


def problem_of(silos):
    return prepare(silos, np.ones(len(silos)), clean=False).problem


@pytest.mark.parametrize(
    ("kind", "expected"), [("hmm", False), ("topics", True), ("mixture", True), (None, True)]
)
def test_states_of_symbols_are_not_topics(kind, expected):
    structure = None if kind is None else Structure(kind, {}, {})
    silos = [replace(silo, structure=structure) for silo in categorical_chains()]
    problem = problem_of(silos)
    assert problem.merged_by_loss is expected
    assert problem.some(np.arange(2)).merged_by_loss is expected
    assert problem.comparable().merged_by_loss is expected
    if kind is not None:
        assert problem_of([silos[0], replace(silos[1], structure=None)]).merged_by_loss


def test_states_of_symbols_are_matched_as_other_components_are():
    chains = categorical_chains()
    family = Product(symbols=chains[0].family)
    plain = [kf.Posterior(family, s.natural, s.name, counts=s.counts) for s in chains]
    of_chains, of_plain = (kf.fuse(silos, n_components=8).labels for silos in (chains, plain))
    for own, expected in zip(of_chains, of_plain, strict=True):
        np.testing.assert_array_equal(own, expected)


def test_components_in_a_scratch_folder_keep_the_kind_of_model(tmp_path):
    kf.save(tmp_path / "a.safetensors", categorical_chains()[0])
    with Files([("a", tmp_path / "a.safetensors")], 10**9) as batches:
        kinds = list(batches.parts(problem_of).map(lambda part: part.kind))
    assert kinds == ["hmm"]
