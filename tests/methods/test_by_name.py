"""Components with names are matched by them and by nothing else."""

from __future__ import annotations

import pytest

import klfusion as kf
from klfusion.errors import IncompatibleSilosError, InvalidPosteriorError, KLFusionError
from klfusion.posteriors.structure import Structure

GAMMA = kf.families.Gamma()


def silo(name, wards, shapes):
    structure = Structure("named", info={"components": wards}) if wards else None
    natural = GAMMA.natural(shapes, [10.0] * len(shapes))
    return kf.Posterior(GAMMA, natural, name=name, structure=structure)


def test_names_decide_and_are_kept(tmp_path):
    fusion = kf.fuse([silo("a", ["icu", "er"], [30, 900]), silo("b", ["er", "ward"], [32, 910])])
    assert fusion.n_components == 3
    names = fusion.posterior.structure.info["components"]
    assert [names[g] for g in fusion.labels["a"]] == ["icu", "er"]
    assert [names[g] for g in fusion.labels["b"]] == ["er", "ward"]
    kf.save(tmp_path / "f.safetensors", fusion)
    assert kf.load(tmp_path / "f.safetensors").settings.method == kf.ByName()
    assert fusion.remove("b").n_components == 2
    assert fusion.add(silo("c", ["er"], [40])).labels["c"].tolist() == [names.index("er")]


def test_some_with_names_and_some_without_are_matched_by_likeness():
    fusion = kf.fuse([silo("a", ["icu", "er"], [30, 900]), silo("b", None, [905, 31])])
    assert fusion.labels["b"].tolist() == fusion.labels["a"].tolist()[::-1]


def test_wrong_names():
    with pytest.raises(InvalidPosteriorError, match=r"silo 'a': expected 2 names .* got 1"):
        kf.fuse([silo("a", ["icu"], [30, 900])])
    with pytest.raises(InvalidPosteriorError, match="expected different components, got 'icu' twi"):
        kf.fuse([silo("a", ["icu", "icu"], [30, 900])])
    with pytest.raises(KLFusionError, match="are matched by them"):
        kf.fuse([silo("a", ["icu"], [30])], method="relaxed")
    with pytest.raises(IncompatibleSilosError, match="expected named components"):
        kf.fuse([silo("a", None, [30]), silo("b", None, [31])], method=kf.ByName())
