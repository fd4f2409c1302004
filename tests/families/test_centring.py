"""Moving the origin changes no divergence, and rescues digits far from it."""

from __future__ import annotations

import numpy as np

import klfusion as kf
from klfusion.families import Centred, Tempered
from tests.families.cases import every_case_with


@every_case_with(Centred)
def test_divergences_do_not_change(case):
    natural = case.draw(np.random.default_rng(0), 5)
    centred = case.family.centred(natural)
    np.testing.assert_allclose(
        case.family.kl(centred, centred), case.family.kl(natural, natural), rtol=1e-6, atol=1e-8
    )


def check_parts(change, natural):
    parts = [change(part, natural) for part in (natural[:2], natural[2:])]
    np.testing.assert_allclose(np.concatenate(parts), change(natural), rtol=1e-12)


@every_case_with(Centred)
def test_parts_are_centred_like_the_whole(case):
    check_parts(case.family.centred, case.draw(np.random.default_rng(1), 6))


@every_case_with(Tempered)
def test_parts_are_made_comparable_like_the_whole(case):
    check_parts(case.family.comparable, case.draw(np.random.default_rng(1), 6))


def test_locations_are_centred():
    family = kf.families.NormalWishart(2)
    natural = family.natural(
        mean=[[1e3, 5.0], [1e3 + 1.0, 7.0]],
        kappa=[10.0, 20.0],
        scale_inv=np.stack([np.eye(2)] * 2),
        dof=[10.0, 20.0],
    )
    mean = family.params(family.centred(natural))["mean"]
    np.testing.assert_allclose(mean, [[-0.5, -1.0], [0.5, 1.0]], atol=1e-8)
