"""The kind of model chooses the method, not the family of its components."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import klfusion as kf
from klfusion.families import Product
from klfusion.methods import method_for
from klfusion.posteriors.structure import Structure
from tests.golden.makers import categorical_chains, networks


@pytest.mark.parametrize(
    ("kind", "topics"), [("hmm", False), ("topics", True), ("mixture", False), (None, True)]
)
def test_topics_are_dirichlets_of_a_topic_model(kind, topics):
    silos = []
    for silo in categorical_chains():
        arrays = {"topics": {}, "mixture": {"counts": silo.counts, "weight_prior": 1.0}}.get(kind)
        structure = silo.structure if arrays is None else Structure(kind, arrays)
        silos.append(replace(silo, structure=None if kind is None else structure))
    for method in ("auto", kf.Penalised(3.0), kf.MaxLoss()):
        assert method_for(method, silos).topics is topics
    assert method_for("binary", silos) == kf.Binary()


def test_states_of_symbols_are_matched_as_other_components_are():
    chains = categorical_chains()
    family = Product(symbols=chains[0].family)
    plain = [kf.Posterior(family, s.natural, s.name, counts=s.counts) for s in chains]
    of_chains, of_plain = (kf.fuse(silos, n_components=8).labels for silos in (chains, plain))
    for own, expected in zip(of_chains, of_plain, strict=True):
        np.testing.assert_array_equal(own, expected)


def test_networks_have_a_method_of_their_own():
    silos = networks((6,))
    outgoing = method_for("auto", silos).outgoing
    assert outgoing > 0
    assert method_for(kf.Penalised(2.0, max_iter=7), silos) == kf.Networks(
        penalty=2.0, max_iter=7, outgoing=outgoing
    )
    with pytest.raises(kf.KLFusionError, match="networks are fused without max_loss"):
        method_for(kf.MaxLoss(), silos)
