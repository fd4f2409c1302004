"""Whatever is constructed is whole: every array and setting that a kind is fused from."""

from __future__ import annotations

import numpy as np
import pytest

import klfusion as kf
from klfusion.errors import InvalidPosteriorError, KLFusionError
from klfusion.posteriors.structure import Structure
from tests.helpers.loops import for_each

RATES, TWO = kf.families.Gamma(), np.ones((2, 2))
MIXTURE = {"counts": [10.0, 5.0], "weight_prior": 1.0}
HMM = {"start": TWO[0], "transition": TWO, "start_prior": TWO[0], "transition_prior": TWO}
TOPICS = {"topic_mass": [3.0, 2.0], "doc_topic_prior": [0.1, 0.1]}
NETWORK = {"mean.1": np.zeros((3, 3)), "variance.1": np.ones((3, 3)), "class_counts": np.ones(3)}
UNITS = {"n_in": 4, "layers": ["a", "b"], "activation": "relu", "head": "classification"}
SHARED = {"slope.mean": np.zeros(3), "slope.variance": np.ones(3)}
REAL = {"kind": "real"}
SITES = {
    "sites": [{"name": "rate", "shape": [2], "axis": -2, "support": REAL}],
    "shared": [{"name": "slope", "shape": [3], "support": REAL}],
}
HEAD = {"scatter": np.ones(3), "mean": np.ones(2), "rows": np.ones(1), "probe": np.zeros(2)}
WHOLE = {
    "mixture": (RATES, MIXTURE, {"features": ["age"], "covariance_type": "full"}),
    "hmm": (RATES, HMM, {"frame_weight": 0.5}),
    "topics": (kf.families.Dirichlet(2), TOPICS, {"vocabulary": ["dog", "cat"]}),
    "layers": (kf.families.DiagonalNormal(8), NETWORK, {**UNITS, "classes": ["x", "y", "z"]}),
    "sites": (kf.families.DiagonalNormal(2), SHARED, SITES),
    "head": (kf.families.IsotropicNormalGamma(2), HEAD, {"map": {"class": "x"}, "n_inputs": 2}),
}


def made(kind, arrays=None, info=None):
    family, given, settings = WHOLE[kind]
    natural = np.ones((2, family.size))
    if isinstance(family, kf.families.DiagonalNormal):
        natural = family.natural(np.zeros((2, family.dim)), np.ones((2, family.dim)))
    if isinstance(family, kf.families.IsotropicNormalGamma):
        natural = family.natural(np.zeros((2, family.dim)), *np.ones((3, 2)))
    both = [{k: v for k, v in ({**a, **(b or {})}).items() if v is not None}
            for a, b in ((given, arrays), (settings, info))]  # fmt: skip
    return kf.Posterior(family, natural, name="a", structure=Structure(kind, *both))


@pytest.mark.parametrize("kind", WHOLE)
def test_a_whole_structure_is_taken(kind):
    assert made(kind).n_components == 2


BAD = {
    "negative counts": ("mixture", {"counts": [-1.0, 5.0]}, {}, "numbers >= 0, got -1"),
    "no counts": ("mixture", {"counts": None}, {}, "counts to be an array of shape (2,), got none"),
    "three counts": ("mixture", {"counts": [1.0, 1.0, 1.0]}, {}, "of shape (2,), got (3,)"),
    "no prior": ("mixture", {"weight_prior": 0.0}, {}, "numbers > 0, got 0"),
    "features": ("mixture", {}, {"features": ["a", "b"]}, "the names of 1 columns"),
    "features of numbers": ("mixture", {}, {"features": [1]}, "the names of 1 columns"),
    "negative steps": ("hmm", {"transition": -5.0 * TWO}, {}, "numbers >= 0, got -5"),
    "empty prior": ("hmm", {"transition_prior": 0.0 * TWO}, {}, "got zeros alone"),
    "no start": ("hmm", {"start": None}, {}, "hmm.start to be an array of shape (2,)"),
    "frames": ("hmm", {}, {"frame_weight": "x"}, "frame_weight to be a number > 0"),
    "negative mass": ("topics", {"topic_mass": [-3.0, 1.0]}, {}, "numbers >= 0, got -3"),
    "one of two": ("topics", {"topic_mass": None}, {}, "topic_mass to be an array"),
    "words": ("topics", {}, {"vocabulary": ["dog"]}, "expected a vocabulary of 2 words"),
    "one word": ("topics", {}, {"vocabulary": ["caf\u00e9", "cafe\u0301"]}, "unique words"),
    "no layers": ("layers", {}, {"layers": None}, "layers to be names of 2 layers or more"),
    "variance": ("layers", {"variance.1": np.zeros((3, 3))}, {}, "variance.1 to be numbers > 0"),
    "columns": ("layers", {"mean.1": np.zeros((3, 9))}, {}, "mean.1 to be of shape (3, 3)"),
    "inputs": ("layers", {}, {"n_in": 5}, "layers to be DiagonalNormal(dim=9)"),
    "classes": ("layers", {}, {"classes": ["x", "x", "y"]}, "classes to be 3 unique labels"),
    "sites": ("sites", {}, {"sites": 5}, "sites to be a list of sites"),
    "site": ("sites", {}, {"sites": [{"name": "x"}]}, "a name, a shape and a support"),
    "shared": ("sites", {"slope.variance": None}, {}, "slope.variance to be an array"),
    "size": ("sites", {}, {"sites": []}, "sites to be DiagonalNormal(dim=0)"),
    "scatter": ("head", {"scatter": np.ones(4)}, {}, "scatter to be of shape (3,)"),
    "no rows": ("head", {"rows": np.zeros(1)}, {}, "rows to be numbers > 0"),
    "probe": ("head", {"probe": np.ones(3)}, {}, "probe to be of shape (2,)"),
    "softmax": ("head", {"calibration": np.ones(3)}, {}, "calibration to be of shape (3, 2)"),
    "no map": ("head", {}, {"map": "x"}, "map to be a feature map"),
    "map": ("head", {}, {"map": {}}, "a feature map with the name of its class"),
}


@pytest.mark.parametrize("name", BAD)
def test_what_lacks_something_is_refused(name):
    kind, arrays, info, message = BAD[name]
    with pytest.raises(KLFusionError) as error:
        made(kind, arrays, info)
    assert str(error.value).startswith("silo 'a': expected ")
    assert message in str(error.value)


@for_each("value", [5, ["x"], None, {1: "x"}])
def test_structures_are_of_mappings(value):
    for broken in ({"arrays": value}, {"info": value}):
        with pytest.raises(InvalidPosteriorError, match="to be a mapping of text to values"):
            Structure("mixture", **broken)
