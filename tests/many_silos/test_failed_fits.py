"""Failed local fits where silos are sampled or read from files, as where all are compared."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import klfusion as kf
from experiments.users import SCENARIOS, draw
from klfusion.many_silos.linkage import link_many
from klfusion.model_size.evidence import LinkageSettings
from klfusion.model_size.preparation import prepare
from klfusion.model_size.silo_variation import estimate_variation
from klfusion.model_size.typical_prior import under_one_prior
from klfusion.objective.batches import InMemory, SiloStore

SOME = ("ten silos, right size", "maximum likelihood, right size", "fifteen silos, shifted")


@pytest.fixture(scope="module", params=SOME)
def silos(request):
    return draw(SCENARIOS[request.param], np.random.default_rng([7, 0])).models


def labels_of(fusion):
    return [own.tolist() for own in fusion.labels]


def test_files_are_matched_as_in_memory(silos, tmp_path):
    paths = {silo.name: tmp_path / f"{silo.name}.safetensors" for silo in silos}
    for silo in silos:
        kf.save(paths[silo.name], silo)
    here, there = kf.fuse(silos), kf.fuse_files(paths, memory_limit="1GB")
    assert labels_of(there) == labels_of(here)
    assert there.unmatched == here.unmatched


def test_a_sample_of_half_of_the_silos_is_matched_as_all():
    scenario = replace(SCENARIOS["ten silos, right size"], n_silos=60)
    silos = draw(scenario, np.random.default_rng([7, 0])).models
    problem = under_one_prior(prepare(silos, np.ones(60), clean=True).problem)
    base = kf.Auto().compared(problem)
    variation = estimate_variation(base, np.random.default_rng(0), lambda *_: None)
    varied = base.with_variation(variation)
    store = SiloStore.of(InMemory(varied), varied.as_given, variation)
    search = kf.Auto().search(None, np.random.default_rng(0), lambda *_: None)
    few = link_many(store, LinkageSettings(), search, most=problem.n // 2, outcomes=500)
    assert int(few.labels.max()) + 1 == kf.fuse(silos).n_components
