"""Draws become a Normal over named, unconstrained coordinates; what is wrong is said."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

import klfusion as kf
from klfusion.posteriors.structure.regression import Information
from tests.helpers.loops import for_each

DIMS = {"dims": {"beta": ["covariate"]}, "coords": {"covariate": ["age", "dose"]}}


def draws(seed=0, chains=4, n=500, dose=0.5):
    rng = np.random.default_rng(seed)
    shift = rng.normal(size=(chains, n))  # makes the two coefficients correlated
    beta = np.stack([1.0 + 0.1 * shift, dose - 0.05 * shift + 0.1 * rng.normal(size=(chains, n))])
    return {"beta": np.moveaxis(beta, 0, 2), "sigma": np.exp(rng.normal(0.5, 0.1, (chains, n)))}


class TestMoments:
    def test_are_those_of_the_coordinates(self):
        own = draws()
        posterior = kf.from_draws(own, name="a", **DIMS)
        assert posterior.structure.info["coordinates"] == ["beta[age]", "beta[dose]", "log(sigma)"]
        table = np.column_stack([own["beta"].reshape(-1, 2), np.log(own["sigma"]).ravel()])
        found = posterior.params()
        np.testing.assert_allclose(found["mean"][0], table.mean(axis=0), atol=1e-10)
        np.testing.assert_allclose(found["covariance"][0], np.cov(table.T), rtol=0.01, atol=1e-5)
        assert "findings" not in posterior.provenance

    def test_many_short_runs_give_the_right_precision_on_average(self):
        rng, total = np.random.default_rng(0), 0.0
        for _ in range(200):
            own = {"b": rng.normal(size=(1, 60, 6))}
            natural = kf.from_draws(own, name="a").natural[0]
            total += np.trace(Information.of(natural, 6).precision) / 6
        assert total / 200 == pytest.approx(1.0, abs=0.03)  # the inverse alone gives 1.13

    def test_silos_agree_by_name(self):
        a = kf.from_draws(draws(0), name="a", **DIMS)
        other = draws(1)
        other["beta"] = other["beta"][..., ::-1]
        b = kf.from_draws({"sigma": other["sigma"], "beta": other["beta"]}, name="b",
                          dims=DIMS["dims"], coords={"covariate": ["dose", "age"]})  # fmt: skip
        mean = kf.fuse([a, b]).posterior.params()["mean"][0]
        np.testing.assert_allclose(mean, [1.0, 0.5, 0.5], atol=0.02)

    def test_a_coordinate_that_a_silo_lacks_has_the_prior(self):
        a = kf.from_draws(draws(0), name="a", prior={"beta": 10.0}, **DIMS)
        own = draws(1)
        own["beta"] = own["beta"][..., :1]
        only_age = {"dims": DIMS["dims"], "coords": {"covariate": ["age"]}}
        b = kf.from_draws(own, name="b", prior={"beta": 10.0}, **only_age)
        fused = kf.fuse([a, b]).posterior
        assert fused.params()["mean"][0][1] == pytest.approx(0.5, abs=0.02)
        flat = kf.from_draws(own, name="b", **only_age)
        with pytest.raises(kf.KLFusionError, match=r"the coordinate 'beta\[d.*give prior at"):
            kf.fuse([kf.from_draws(draws(0), name="a", **DIMS), flat])

    def test_other_supports_are_refused(self):
        a = kf.from_draws(draws(0), name="a", **DIMS)
        b = kf.from_draws(draws(1), name="b", supports={"sigma": (0, 99)}, **DIMS)
        with pytest.raises(
            kf.KLFusionError, match=r"silo 'b': expected 'sigma' with support .* as in silo 'a'"
        ):
            kf.fuse([a, b])

    def test_local_variables_are_given_back(self):
        silos = [kf.from_draws(draws(s, dose=d), name=f"s{s}", local=["sigma", "beta[dose]"],
                 **DIMS) for s, d in enumerate([0.5, 2.0])]  # fmt: skip
        fusion = kf.fuse(silos)
        assert fusion.posterior.structure.info["coordinates"] == ["beta[age]"]
        site = fusion.site("s1")
        found = dict(zip(site.structure.info["coordinates"], site.params()["mean"][0], strict=True))
        assert found["beta[dose]"] == pytest.approx(2.0, abs=0.05)

    def test_files_hold_variables(self, tmp_path):
        posterior = kf.from_draws(draws(), name="a", **DIMS)
        kf.save(tmp_path / "a.safetensors", posterior)
        again = kf.load(tmp_path / "a.safetensors")
        assert again.structure.info["variables"] == posterior.structure.info["variables"]


def test_merged_chains_are_refused():
    """As get_samples() of NumPyro gives them."""
    merged = np.random.default_rng(0).normal(size=(4000, 3))
    with pytest.raises(kf.KLFusionError, match=r"\(chain, draw, ...\), got shape \(4000, 3\)"):
        kf.from_draws({"beta": merged}, name="a")
    assert kf.from_draws({"beta": merged[None]}, name="a").family.dim == 3


def test_whole_numbers_are_discrete_whatever_their_type():
    """As files of Stan have them."""
    rng = np.random.default_rng(0)
    states = rng.integers(3, size=(4, 500)).astype(float)
    with pytest.raises(kf.KLFusionError, match=r"'z': expected .* got whole numbers: mar"):
        kf.from_draws({"z": states}, name="a")
    large = rng.normal(1e9, 1e8, (4, 500)).astype(np.float32)  # without fractions
    assert kf.from_draws({"x": large}, name="a").family.dim == 1


def test_constant_draws_lead_to_supports():
    factor = np.tile(np.eye(2), (4, 500, 1, 1))
    factor[..., 1, 0] = 0.1 * np.random.default_rng(0).normal(size=(4, 500))
    factor[..., 1, 1] = np.sqrt(1 - factor[..., 1, 0] ** 2)
    with pytest.raises(kf.KLFusionError, match=r"constant ones of 'Omega\[0, 0\]', .* supports="):
        kf.from_draws({"Omega": factor}, name="a")
    assert kf.from_draws({"L_Omega": factor}, name="a").family.dim == 1


def test_bounds_that_the_normal_passes_are_found():
    rng = np.random.default_rng(0)
    own = {"theta": rng.beta(2, 20, (4, 500)), "lam": rng.gamma(2, 2, (4, 500)),
           "far": rng.normal(9, 1, (4, 500))}  # fmt: skip
    found = kf.from_draws(own, name="a").provenance["findings"]
    assert any("every draw of 'theta' is between 0 and 1" in text for text in found)
    assert any("supports={'lam': 'positive'}" in text for text in found)
    assert not any("far" in text for text in found)
    supports = {"theta": "unit_interval", "lam": "positive"}
    found = kf.from_draws(own, name="a", supports=supports).provenance.get("findings", [])
    assert not any("every draw" in text for text in found)


class TestPriors:
    def prior_of(self, prior, own=None, **options):
        posterior = kf.from_draws(own or draws(), name="a", prior=prior, **(options or DIMS))
        return Information.of(posterior.prior, posterior.family.dim)

    def test_a_flat_prior_of_a_positive_variable_is_linear_in_its_logarithm(self):
        found = self.prior_of(None)
        np.testing.assert_allclose(found.shift, [0.0, 0.0, 1.0], atol=1e-9)
        assert not found.precision.any()

    def test_numbers(self):
        found = self.prior_of({"beta": (1.0, 2.0)})
        np.testing.assert_allclose(np.diag(found.precision)[:2], 0.25)
        np.testing.assert_allclose(found.shift[:2], 0.25)

    @for_each("prior", [stats.norm(1.0, 2.0), lambda v: stats.norm(1.0, 2.0).logpdf(v)])
    def test_a_normal_distribution_is_itself(self, prior):
        found = self.prior_of({"beta": prior})
        np.testing.assert_allclose(found.precision[:2, :2], 0.25 * np.eye(2), atol=1e-9)
        np.testing.assert_allclose(found.shift[:2], 0.25, atol=1e-9)

    def test_a_joint_distribution(self):
        covariance = np.array([[2.0, 0.5], [0.5, 1.0]])
        found = self.prior_of({"beta": stats.multivariate_normal([1.0, 2.0], covariance)})
        np.testing.assert_allclose(found.precision[:2, :2], np.linalg.inv(covariance), atol=1e-9)

    def test_half_cauchy_far_from_zero_falls_like_one_over_the_value(self):
        own = draws()
        own["sigma"] = 1e4 * own["sigma"]
        found = self.prior_of({"sigma": stats.halfcauchy(0, 2.5)}, own)
        # The density falls by the square of the value; the logarithm's derivative gives one back.
        assert found.shift[2] == pytest.approx(-1.0, abs=1e-3)
        assert found.precision[2, 2] == pytest.approx(0.0, abs=1e-3)

    def test_a_convex_logarithm_has_a_negative_precision(self):
        own = {"b": np.random.default_rng(0).normal(50.0, 1.0, (4, 500))}
        found = self.prior_of({"b": stats.t(3)}, own, dims={})
        assert found.precision[0, 0] == pytest.approx(-4.0 / 50.0**2, rel=0.05)
        slope = found.shift[0] - 50.0 * found.precision[0, 0]
        assert slope == pytest.approx(-4.0 / 50.0, rel=0.05)

    def test_draws(self):
        prior = np.random.default_rng(1).normal(1.0, 2.0, (20_000, 2))
        found = self.prior_of({"beta": prior})
        np.testing.assert_allclose(found.precision[:2, :2], 0.25 * np.eye(2), atol=0.01)

    def test_is_counted_once(self):
        """Conjugate: two halves of the data with a strong prior give the posterior of all."""
        rng, n, sd = np.random.default_rng(0), 40, 0.5
        y = rng.normal(1.0, 1.0, n)
        silos = []
        for k, part in enumerate(np.split(y, 2)):
            precision = len(part) + 1 / sd**2
            own = rng.normal(part.sum() / precision, precision**-0.5, (4, 5_000))
            silos.append(kf.from_draws({"mu": own}, name=f"s{k}", prior={"mu": sd}))
        fused = kf.fuse(silos).posterior.params()
        precision = n + 1 / sd**2
        assert fused["mean"][0, 0] == pytest.approx(y.sum() / precision, abs=0.01)
        assert fused["covariance"][0, 0, 0] == pytest.approx(1 / precision, rel=0.05)

    @for_each("prior, message", [
        ({"gamma": 1.0}, r"prior: expected names of 'beta', 'sigma', got 'gamma'"),
        ({"beta": -1.0}, r"prior of 'beta': expected 'flat', a standard deviation"),
        ({"beta": stats.uniform(5, 6)}, r"prior of 'beta': expected a positive density at every"),
        ({"beta": np.zeros((9, 3))}, r"prior of 'beta': expected draws of shape \(2,\)"),
    ])  # fmt: skip
    def test_bad_priors(self, prior, message):
        with pytest.raises(kf.KLFusionError, match=f"silo 'a': {message}"):
            kf.from_draws(draws(), name="a", prior=prior, **DIMS)


class TestPriorsNarrowerThanTheDraws:
    def silo(self, name, prior, seed=0):
        own = np.random.default_rng(seed).normal(1.0, 0.1, (4, 1000, 2))
        return kf.from_draws({"beta": own}, name=name, prior={"beta": prior}, **DIMS)

    def test_are_a_finding_that_names_silo_and_variable(self):
        silos = [self.silo(name, 0.07 if name == "a" else 1.0) for name in "abc"]
        said = "the prior of 'beta[age]', 'beta[dose]' is narrower than the draws"
        assert any(text.startswith(said) for text in silos[0].provenance["findings"])
        found = [str(own) for own in kf.diagnose(kf.fuse(silos)).findings]
        assert any(text.startswith(f"silo 'a': {said}") for text in found)
        assert not any("do not separate" in text for text in found)

    @pytest.mark.parametrize("pooling", ["auto", "hierarchical"])
    def test_at_all_silos_are_an_error_that_names_them(self, pooling):
        silos = [self.silo(name, 0.07) for name in "abc"]
        message = r"got wider ones at silos 'a', 'b', 'c' of 'beta\[age\]', 'beta\[dose\]'"
        with pytest.raises(kf.KLFusionError, match=message):
            kf.fuse(silos, pooling=pooling)

    def test_chance_is_no_finding(self):
        """Draws of the prior alone are as wide as it is, but for their error."""
        silos = [self.silo(f"s{seed}", (1.0, 0.1), seed) for seed in range(20)]
        assert any(np.diag(p.params()["covariance"][0]).max() > 0.1**2 for p in silos)
        assert not any("findings" in p.provenance for p in silos)

    def test_of_a_component(self):
        rng = np.random.default_rng(0)
        own = {"mu": rng.normal([-2.0, 2.0], [0.1, 0.5], (4, 1000, 2))}
        made = kf.from_draws(own, name="a", dims={"mu": ["component"]}, components="component",
                             prior={"mu": (0.0, 0.3)})  # fmt: skip
        (found,) = [t for t in made.provenance["findings"] if "narrower" in t]
        assert found.startswith("component 1: the prior of 'mu' is narrower than the draws")


class TestWhatIsWrong:
    @for_each("change, message", [
        (lambda d: d["beta"].__setitem__((1, 7), np.nan),
         r"'beta': expected finite draws, got 2 NaN or infinite, the first in chain 1, draw 7"),
        (lambda d: d.__setitem__("k", np.ones((4, 500), dtype=int)),
         r"'k': expected draws of a continuous variable, got int64: marginalise"),
        (lambda d: d.__setitem__("sum", d["beta"].sum(axis=2)),
         r"expected coordinates that are no functions of each other, got 'beta\[0\]', 'beta\[1\]'"),
        (lambda d: d.__setitem__("c", np.ones((4, 500))),
         r"expected draws that vary, got constant ones of 'c'"),
        (lambda d: d.__setitem__("c", np.ones((4, 400))), r"'c': expected \(4, 500\) chains and"),
        (lambda d: d.__setitem__("c", np.ones(4)), r"'c': expected an array \(chain, draw"),
        (lambda d: d.__setitem__("c", np.array([["x"]])), r"'c': expected an array of numbers"),
    ])  # fmt: skip
    def test_errors(self, change, message):
        own = draws()
        change(own)
        with pytest.raises(kf.KLFusionError, match=f"silo 'a': {message}"):
            kf.from_draws(own, name="a")

    @for_each("options, message", [
        ({"variables": ["gamma"]}, "variables: expected names of 'beta', 'sigma', got 'gamma'"),
        ({"supports": {"sigma": "simplex"}}, "'sigma': expected 1 axes of a simplex or more"),
        ({"supports": {"beta": "positive_ordered"}}, "'beta': expected draws within its support"),
        ({"supports": {"sigma": (9, 0)}},
         r"'sigma': expected a lower bound below the upper one, both finite or None, got \(9, 0\)"),
        ({"supports": {"sigma": (1.0, 1.0)}}, "'sigma': expected a lower bound below the upper"),
        ({"supports": {"sigma": (0, np.inf)}}, "'sigma': .* both finite or None, got"),
        ({"supports": {"sigma": (np.nan, None)}}, "'sigma': .* both finite or None, got"),
        ({"dims": {"beta": ["a", "b"]}}, "'beta': expected 1 dims, got 2"),
        ({"coords": {"beta_dim_0": ["x", "x"]}}, "'beta': expected 2 different coords"),
        ({"local": "sigma"}, "local: expected a list of names, got 'sigma'"),
        ({"local": ["tau"]}, "local: expected a list of names"),
    ])  # fmt: skip
    def test_bad_options(self, options, message):
        with pytest.raises(kf.KLFusionError, match=f"silo 'a': {message}"):
            kf.from_draws(draws(), name="a", **options)

    def test_no_mapping(self):
        with pytest.raises(kf.KLFusionError, match=r"silo 'a': expected a mapping of names to arr"):
            kf.from_draws([1.0], name="a")

    def test_ten_draws(self):
        own = {key: values[:, ::100][:2] for key, values in draws().items()}
        posterior = kf.from_draws(own, name="a")
        assert any("effective sample size" in text for text in posterior.provenance["findings"])
        many = {**own, "gamma": np.random.default_rng(0).normal(size=(2, 5, 9))}
        with pytest.raises(kf.KLFusionError, match="expected more than 14 draws of 12 coordinates"):
            kf.from_draws(many, name="a")

    def test_findings_reach_the_diagnosis(self):
        stuck = draws()
        stuck["beta"][2] += 0.4
        silos = [kf.from_draws(stuck, name="a", diverging=np.arange(2000) < 3),
                 kf.from_draws(draws(1), name="b")]  # fmt: skip
        found = [str(own) for own in kf.diagnose(kf.fuse(silos)).findings]
        assert any(text.startswith("silo 'a': R-hat is 1.") for text in found)
        assert any("3 of 2000 transitions diverged" in text for text in found)
        assert not any("'b'" in text for text in found)

    def test_draws_that_are_not_normal(self):
        rng = np.random.default_rng(0)
        two = rng.normal(size=(4, 1000)) + 3.0 * rng.choice([-1, 1], (4, 1000))
        found = kf.from_draws({"b": two}, name="a").provenance["findings"]
        assert any("nats or more from a Normal" in text for text in found)
        angle = rng.uniform(0, 2 * np.pi, (4, 1000))
        ring = np.stack([np.cos(angle), np.sin(angle)], axis=-1) + 0.1 * rng.normal(
            size=(4, 1000, 2)
        )
        joint = kf.from_draws({"b": ring}, name="a").provenance["findings"]
        assert any("nats or more" in text for text in joint)


@pytest.mark.parametrize("n", ["60", "x", 0, -1])
def test_counts_of_observations_are_numbers(n):
    draws = {"beta": np.random.default_rng(0).normal(size=(2, 500))}
    with pytest.raises(kf.KLFusionError, match="silo 'a': n_observations to be a number"):
        kf.from_draws(draws, name="a", n_observations=n)
