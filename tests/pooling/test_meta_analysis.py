"""Meta-analysis of one number per silo, against a reference implementation and the literature."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from scipy import stats

import klfusion as kf
from klfusion.pooling.meta_analysis import ConfidenceDistribution, meta_analysis, paule_mandel
from tests.helpers.loops import for_each

# Trials of the BCG vaccine (Colditz et al., 1994): cases and others, vaccinated and not.
BCG = np.array(
    [[4, 119, 11, 128], [6, 300, 29, 274], [3, 228, 11, 209], [62, 13536, 248, 12619],
     [33, 5036, 47, 5761], [180, 1361, 372, 1079], [8, 2537, 10, 619], [505, 87886, 499, 87892],
     [29, 7470, 45, 7232], [17, 1699, 65, 1600], [186, 50448, 141, 27197], [5, 2493, 3, 2338],
     [27, 16886, 29, 17825]], dtype=float,
)  # fmt: skip
# Teacher expectancy (Raudenbush, 1984): effects and their variances.
EFFECTS = [0.03, 0.12, -0.14, 1.18, 0.26, -0.06, -0.02, -0.32, 0.27, 0.80, 0.54, 0.18, -0.02, 0.23]
EFFECTS += [-0.18, -0.06, 0.30, 0.07, -0.07]
VARIANCES = [0.0156, 0.0216, 0.0279, 0.1391, 0.1362, 0.0106, 0.0106, 0.0484, 0.0269, 0.0630, 0.0912]
VARIANCES += [0.0497, 0.0835, 0.0841, 0.0253, 0.0279, 0.0193, 0.0088, 0.0303]
# Days in hospital after a stroke (Normand, 1999): number, mean, deviation; two kinds of care.
STAYS = np.array(
    [[155, 55, 47, 156, 75, 64], [31, 27, 7, 32, 29, 4], [75, 64, 17, 71, 119, 29],
     [18, 66, 20, 18, 137, 48], [8, 14, 8, 13, 18, 11], [57, 19, 7, 52, 18, 4],
     [34, 52, 45, 33, 41, 34], [110, 21, 16, 183, 31, 27], [60, 30, 27, 52, 23, 20]], dtype=float,
)  # fmt: skip


def risk_ratios():
    a, b, c, d = BCG.T
    log_ratio = np.log(a / (a + b)) - np.log(c / (c + d))
    return log_ratio, 1 / a - 1 / (a + b) + 1 / c - 1 / (c + d)


def differences():
    n1, m1, s1, n2, m2, s2 = STAYS.T
    return m1 - m2, s1**2 / n1 + s2**2 / n2


# By statsmodels 0.15, combine_effects(method_re="iterated", use_t=True): mean, its standard error
# after Hartung and Knapp, tau2, I2; and Q, as in the documentation of R's metafor.
REFERENCE = {
    "BCG": (risk_ratios(), (-0.71496815, 0.18089219, 0.31806845, 0.92117347), 152.2330),
    "expectancy": (
        (np.array(EFFECTS), np.array(VARIANCES)),
        (0.10395697, 0.06820839, 0.05177331, 0.49762118),
        35.8295,
    ),
    "stays": (differences(), (-15.14568003, 9.21427160, 728.25112859, 0.96651540), 238.9158),
}


@for_each("name", REFERENCE)
def test_published_meta_analyses(name):
    (estimates, variances), (mean, error, tau2, i2), q = REFERENCE[name]
    names = [f"trial-{k}" for k in range(len(estimates))]
    found = meta_analysis(estimates, variances, tuple(names))
    np.testing.assert_allclose(
        [found.estimate, found.standard_error, found.tau2, found.i2], [mean, error, tau2, i2],
        rtol=1e-6,
    )  # fmt: skip
    assert found.q == pytest.approx(q, abs=5e-5)
    assert sum(found.weights) == pytest.approx(1.0)
    # The same from posteriors, with and without a prior that is left out again.
    for sd in (None, 100.0):
        precision = 1.0 / variances + (0.0 if sd is None else sd**-2)
        silos = [
            kf.coefficients([m / v / p], [[1.0 / p]], ["effect"], name=n, prior_sd=sd)
            for n, m, v, p in zip(names, estimates, variances, precision, strict=True)
        ]
        again = kf.fuse(silos, pooling="hierarchical").heterogeneity()["effect"]
        assert again.tau2 == pytest.approx(found.tau2, rel=1e-6)
        assert again.interval == pytest.approx(found.interval, rel=1e-6)


def test_the_reference_implementation():
    statsmodels = pytest.importorskip("statsmodels.stats.meta_analysis")
    for (estimates, variances), _, _ in REFERENCE.values():
        found = meta_analysis(estimates, variances, ("",) * len(estimates))
        # Given the variance: statsmodels takes zero where rounding carries its steps past the root.
        other = statsmodels.combine_effects(
            estimates, variances, method_re="iterated", use_t=True,
            tau2_start=found.tau2, maxiter=0,
        )  # fmt: skip
        np.testing.assert_allclose(found.interval, other.conf_int()[3], rtol=1e-6)
        # Of Paule and Mandel: the weighted squares are as many as their degrees of freedom.
        assert other.scale_hksj_re == pytest.approx(1.0, rel=1e-6)


def test_the_global_posterior_has_the_corrected_interval():
    estimates, variances = risk_ratios()
    silos = [
        kf.coefficients([m], [[v]], ["effect"], name=f"t{j}")
        for j, (m, v) in enumerate(zip(estimates, variances, strict=True))
    ]
    fusion = kf.fuse(silos, pooling="hierarchical")
    p, found = fusion.posterior.params(), fusion.heterogeneity()["effect"]
    wide = 1.959964 * np.sqrt(p["covariance"][0, 0, 0])
    mean = p["mean"][0, 0]
    np.testing.assert_allclose([mean - wide, mean + wide], found.interval, rtol=1e-5)
    new = fusion.site().params()["covariance"][0, 0, 0]
    assert new > found.tau2


def test_silos_that_agree_by_chance_know_no_more_than_all_of_them():
    """Five estimates of deviation 0.1 have one of 0.1 / sqrt(5), however near they lie."""
    silos = [
        kf.coefficients([m], [[0.01]], ["b"], name=f"s{j}")
        for j, m in enumerate([1.0, 1.01, 0.99, 1.005, 0.995])
    ]
    fusion, pooled = kf.fuse(silos, pooling="hierarchical"), 0.1 / np.sqrt(5)
    assert np.sqrt(fusion.posterior.params()["covariance"].item()) == pytest.approx(pooled)
    found = fusion.heterogeneity()["b"]
    assert found.standard_error == pytest.approx(pooled)
    assert found.interval == pytest.approx((1 - 1.959964 * pooled, 1 + 1.959964 * pooled))


def test_edges():
    assert paule_mandel(np.array([1.0]), np.array([0.1])) == 0.0
    assert paule_mandel(np.array([1.0, 1.1]), np.array([0.5, 0.5])) == 0.0
    one = meta_analysis(np.array([1.0]), np.array([0.04]), ("a",))
    assert one.interval == pytest.approx((0.608, 1.392), abs=1e-3)
    assert one.q_p_value == 1.0
    assert np.isnan(one.prediction_interval).all()  # nothing is known of variation


def test_a_report_of_one_silo(tmp_path):
    fusion = kf.fuse([kf.coefficients([1.0], [[0.01]], ["b"], name="a")])
    page = Path(fusion.report(str(tmp_path / "one.html"))).read_text(encoding="utf-8")
    assert "nan," not in page and "nan to" not in page


def test_only_regressions():
    family = kf.families.Gamma()
    silos = [kf.Posterior(family, family.natural([2.0], [1.0]), name=n) for n in "ab"]
    with pytest.raises(kf.KLFusionError, match="expected a fusion of regressions"):
        kf.fuse(silos).heterogeneity()
    with pytest.raises(kf.KLFusionError, match="expected a fusion of regressions"):
        kf.estimate_prior_sd(kf.fuse(silos))


def test_few_silos_that_agree_may_still_vary():
    alike, variances = np.array([1.0, 1.01, 0.99]), np.full(3, 0.04)
    assert paule_mandel(alike, variances) == 0.0
    assert ConfidenceDistribution.of(alike, variances).limit == 0.0  # unlikely close together
    apart = np.array([1.0, 1.2, 0.8])
    assert paule_mandel(apart, variances) == 0.0
    assert 0.02 < ConfidenceDistribution.of(apart, variances).limit < 0.5


def test_the_prediction_interval_of_exact_estimates_is_that_of_student():
    """Without errors of estimates it has a closed form."""
    y = np.random.default_rng(0).normal(size=6)
    found = meta_analysis(y, np.full(6, 1e-10), ("",) * 6).prediction_interval
    wide = stats.t.ppf(0.975, 5) * y.std(ddof=1) * np.sqrt(1 + 1 / 6)
    np.testing.assert_allclose(found, [y.mean() - wide, y.mean() + wide], rtol=5e-3)


def test_intervals_of_many_silos_are_those_of_a_known_variance():
    rng = np.random.default_rng(1)
    y = 0.5 * rng.normal(size=2000) + 0.2 * rng.normal(size=2000)
    found = ConfidenceDistribution.of(y, np.full(2000, 0.04))
    np.testing.assert_allclose(found.prediction_interval, [-0.98, 0.98], atol=0.05)
    assert found.for_a_new_silo == pytest.approx(0.25, rel=0.1)
    assert found.limit == pytest.approx(0.25, rel=0.1)
    assert (np.diff(found.below) >= 0).all()


def test_silos_of_a_fusion_have_these_intervals():
    estimates, variances = risk_ratios()
    silos = [
        kf.coefficients([m], [[v]], ["effect"], name=f"t{j}")
        for j, (m, v) in enumerate(zip(estimates, variances, strict=True))
    ]
    fusion = kf.fuse(silos, pooling="hierarchical")
    low, high = fusion.heterogeneity()["effect"].prediction_interval
    new = fusion.site().params()["covariance"][0, 0, 0]
    assert 2 * 1.959964 * np.sqrt(new) == pytest.approx(high - low, rel=1e-3)
    limit = ConfidenceDistribution.of(estimates, variances).limit
    weights = 1.0 / (np.delete(variances, 3) + limit)
    expected = 1.0 / (1.0 / variances[3] + 1.0 / (limit + 1.0 / weights.sum()))
    assert fusion.site("t3").params()["covariance"][0, 0, 0] == pytest.approx(expected)
