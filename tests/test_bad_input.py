"""Each thing a user can get wrong, and the one clear message it must give."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

import klfusion as kf
from klfusion._utils import running
from klfusion.errors import IncompatibleSilosError, InvalidPosteriorError, KLFusionError
from klfusion.methods import Binary, Relaxed
from tests.helpers.silos import normal_wishart_silos, rate_silos

GAMMA = kf.families.Gamma()
NW = kf.families.NormalWishart(2)


def gamma(name="site-a", shape=(2.0, 30.0), rate=(1.0, 2.0), **kwargs):
    return kf.Posterior(GAMMA, GAMMA.natural(shape=shape, rate=rate), name=name, **kwargs)


class TestPosterior:
    def test_nan(self):
        with pytest.raises(
            InvalidPosteriorError, match=r"silo 'site-a', component 1: expected finite .* got nan"
        ):
            gamma(shape=(2.0, np.nan))

    def test_infinity(self):
        with pytest.raises(InvalidPosteriorError, match=r"component 0: expected finite .* got inf"):
            gamma(rate=(np.inf, 1.0))

    def test_outside_the_family(self):
        with pytest.raises(
            InvalidPosteriorError, match=r"silo 'site-a', component 1: expected shape > 0 .* got -3"
        ):
            gamma(shape=(2.0, -3.0))

    def test_not_positive_definite(self):
        natural = NW.natural([[0, 0]], [1.0], [np.diag([1.0, -2.0])], [4.0])
        with pytest.raises(
            InvalidPosteriorError,
            match=r"silo 'b', component 0: expected smallest eigenvalue of scale_inv > 0 .* got -2",
        ):
            kf.Posterior(NW, natural, name="b")

    def test_negative_counts(self):
        with pytest.raises(
            InvalidPosteriorError,
            match=r"silo 'site-a', component 1: expected a finite count >= 0, got -4",
        ):
            gamma(counts=[3, -4])

    @pytest.mark.parametrize("counts", [[1.0], [1.0, 2.0, 3.0], [[1.0, 2.0]]])
    def test_counts_of_the_wrong_length(self, counts):
        with pytest.raises(InvalidPosteriorError, match=r"expected counts of shape \(2,\), got"):
            gamma(counts=counts)

    def test_no_components(self):
        with pytest.raises(InvalidPosteriorError, match="'empty': expected at least one component"):
            kf.Posterior(GAMMA, np.empty((0, 2)), name="empty")

    def test_wrong_dimension(self):
        with pytest.raises(InvalidPosteriorError, match=r"expected .* shape \(n, 7\) .* \(2, 6\)"):
            kf.Posterior(NW, np.ones((2, 6)), name="a")

    def test_prior_of_the_wrong_shape_or_outside_the_family(self):
        with pytest.raises(InvalidPosteriorError, match=r"expected a prior of shape \(2,\)"):
            gamma(prior=[[1.0, 1.0]])
        with pytest.raises(InvalidPosteriorError, match=r"silo 'site-a', prior, component 0"):
            gamma(prior=[1.0, -1.0])

    def test_not_numbers(self):
        with pytest.raises(InvalidPosteriorError, match="expected an array of numbers"):
            kf.Posterior(GAMMA, [["a", "b"]], name="a")

    def test_name_that_no_file_could_hold(self):
        with pytest.raises(InvalidPosteriorError, match="expected a name in Unicode"):
            gamma(name="\ud800")

    def test_structure(self):
        with pytest.raises(InvalidPosteriorError, match="expected structure to be a Structure"):
            gamma(structure="mixture")

    @pytest.mark.parametrize(
        "build",
        [
            lambda: NW.natural([[3e9, 0]], [100.0], [np.eye(2) * 100], [102.0]),
            lambda: kf.families.NormalGamma(1).natural([3e9], [100.0], [50.0], [50.0]),
        ],
    )
    def test_means_that_swallow_the_spread(self, build):
        with pytest.raises(InvalidPosteriorError, match="subtract a common offset from the data"):
            build()

    @pytest.mark.parametrize("mean", [[["a", "b"]], [[1.0], [1.0, 2.0]]])
    def test_parameters_that_are_not_numbers(self, mean):
        with pytest.raises(KLFusionError, match="mean: expected an array of numbers"):
            kf.families.DiagonalNormal(2).natural(mean=mean, variance=[[1.0, 1.0]])

    def test_a_missing_factor(self):
        family = kf.families.Product(place=kf.families.DiagonalNormal(1), rate=GAMMA)
        with pytest.raises(KLFusionError, match="expected parameters of the factor 'place'"):
            family.natural(rate={"shape": [1.0], "rate": [1.0]})

    @pytest.mark.parametrize("name", ["", None, 3])
    def test_name(self, name):
        with pytest.raises(InvalidPosteriorError, match="expected name to be a non-empty string"):
            gamma(name=name)

    def test_family(self):
        with pytest.raises(InvalidPosteriorError, match="expected family to be a klfusion family"):
            kf.Posterior("gamma", [[1.0, 1.0]], name="a")

    def test_what_was_checked_cannot_be_changed(self):
        natural = GAMMA.natural(shape=[2.0], rate=[1.0])
        silo = kf.Posterior(GAMMA, natural, name="a")
        natural[0, 0] = -1.0
        assert silo.natural[0, 0] == 2.0
        with pytest.raises(ValueError, match="read-only"):
            silo.natural[0, 0] = -1.0


class TestFuse:
    def test_no_silo(self):
        with pytest.raises(IncompatibleSilosError, match="expected at least one silo, got none"):
            kf.fuse([])

    def test_a_silo_without_its_list(self):
        with pytest.raises(KLFusionError, match="expected a list or mapping of silos"):
            kf.fuse(gamma())

    def test_one_silo_is_returned_and_says_so(self):
        assert str(kf.fuse([gamma()]).status) == "only one silo: it was returned as it is"

    def test_mixed_families(self):
        beta = kf.families.Beta()
        other = kf.Posterior(beta, beta.natural(a=[1.0], b=[2.0]), name="b")
        with pytest.raises(
            IncompatibleSilosError,
            match=r"silo 'b': expected Gamma\(dim=1\) as in silo 'site-a', got Beta\(dim=1\)",
        ):
            kf.fuse([gamma(), other])

    def test_mixed_dimensions(self):
        silos = [normal_wishart_silos(dim=d)[0][0] for d in (2, 3)]
        with pytest.raises(IncompatibleSilosError, match=r"expected .*dim=2.* got .*dim=3"):
            kf.fuse({"a": silos[0], "b": silos[1]})

    def test_duplicate_names(self):
        with pytest.raises(IncompatibleSilosError, match="two silos are named 'site-a'"):
            kf.fuse([gamma(), gamma()])

    @pytest.mark.parametrize("penalty", [0, 0.0, -1.0, np.nan, np.inf, "large", True])
    def test_penalty(self, penalty):
        with pytest.raises(KLFusionError, match="expected penalty to be a number > 0"):
            kf.Penalised(penalty)
        with pytest.raises(KLFusionError, match="expected penalty to be a number > 0 or 'auto'"):
            kf.Binary(penalty=penalty)

    def test_n_components_below_the_largest_silo(self):
        with pytest.raises(
            IncompatibleSilosError, match=r"expected n_components >= 3, the size of silo 'b'.*got 2"
        ):
            kf.fuse([gamma(), gamma("b", (1, 5, 9), (1, 1, 1))], n_components=2)

    def test_n_components_above_all(self):
        with pytest.raises(IncompatibleSilosError, match="expected n_components <= 4"):
            kf.fuse([gamma(), gamma("b")], n_components=5)

    @pytest.mark.parametrize("value", [0, -1, 2.5, True])
    def test_n_components_type(self, value):
        with pytest.raises(KLFusionError, match="expected n_components to be an integer >= 1"):
            kf.fuse([gamma(), gamma("b")], n_components=value)

    def test_both_size_and_penalty(self):
        with pytest.raises(KLFusionError, match="expected no n_components, for the penalty sets"):
            kf.fuse([gamma(), gamma("b")], n_components=3, method=kf.Penalised(1.0))

    @pytest.mark.parametrize("setting", [{"n_init": 0}, {"max_iter": -1}, {"tol": -1.0}])
    def test_settings(self, setting):
        with pytest.raises(KLFusionError, match=f"expected {next(iter(setting))} to be"):
            kf.Auto(**setting)

    def test_unknown_method(self):
        with pytest.raises(KLFusionError, match=r"expected method to be one of .*'auto'.* 'magic'"):
            kf.fuse([gamma(), gamma("b")], method="magic")

    @pytest.mark.parametrize("weights", [[1.0], [1.0, 0.0], [1.0, np.nan], {"site-a": 1.0}, "abc"])
    def test_weights(self, weights):
        with pytest.raises(KLFusionError, match="weight"):
            kf.fuse([gamma(), gamma("b")], weights=weights)

    def test_weights_beyond_what_doubles_carry(self):
        three = [gamma(), gamma("b"), gamma("c")]
        with pytest.raises(
            KLFusionError, match=r"at most 1e\+09 times .* 1e\+15 for silo 'site-a'"
        ):
            kf.fuse(three, weights=[1e15, 1, 1])
        with pytest.raises(KLFusionError, match="got 1 for silo 'site-a' and 1e-15 for silo 'd'"):
            kf.fuse(three).add(gamma("d"), weight=1e-15)
        assert kf.fuse(three, weights=[1e9, 1, 1]).n_silos == 3

    @pytest.mark.parametrize("method", [None, 3, Binary])
    def test_method_of_another_type(self, method):
        with pytest.raises(KLFusionError, match="expected method to be one of"):
            kf.fuse([gamma(), gamma("b")], method=method)

    @pytest.mark.parametrize("setting", ["keep_silos", "progress"])
    @pytest.mark.parametrize("value", ["no", "", 0])
    def test_a_word_is_neither_true_nor_false(self, setting, value):
        with pytest.raises(KLFusionError, match=f"expected {setting} to be True or False, got"):
            kf.fuse([gamma(), gamma("b")], **{setting: value})

    def test_keeping_silos_is_not_left_open(self):
        with pytest.raises(KLFusionError, match="expected keep_silos to be True or False"):
            kf.fuse([gamma(), gamma("b")], keep_silos=None)

    @pytest.mark.parametrize("value", [True, 0, 1.5, "two"])
    def test_min_support(self, value):
        with pytest.raises(KLFusionError, match="expected min_support to be an integer >= 1"):
            kf.fuse([gamma(), gamma("b")]).with_min_support(value)

    def test_no_size_in_a_list_of_sizes(self):
        with pytest.raises(KLFusionError, match=r"expected n_components to be a number, got \[\]"):
            kf.fuse([gamma(), gamma("b")], n_components=[])

    def test_homogeneous_needs_equal_sizes(self):
        with pytest.raises(IncompatibleSilosError, match=r"silos of one size, got sizes \[2, 3\]"):
            kf.fuse([gamma(), gamma("b", (1, 5, 9), (1, 1, 1))], method="homogeneous")

    def test_an_unknown_model(self):
        with pytest.raises(KLFusionError, match=r"silo 'silo-1': cannot read .* from set; supp"):
            kf.fuse([{"a"}, {"b"}])

    @pytest.mark.parametrize(
        ("models", "got"), [(None, "None"), (3, "a si"), ("site.safetensors", "a si")]
    )
    def test_not_a_list(self, models, got):
        with pytest.raises(KLFusionError, match=f"expected a list or mapping of silos, got {got}"):
            kf.fuse(models)

    @pytest.mark.parametrize("name", ["", None, 1])
    def test_names_in_a_mapping(self, name):
        with pytest.raises(KLFusionError, match="expected silo names to be non-empty strings"):
            kf.fuse({name: gamma()})

    @pytest.mark.parametrize("state", [-1, "a", 1.5])
    def test_random_state(self, state):
        with pytest.raises(KLFusionError, match="expected random_state to be an integer >= 0"):
            kf.fuse([gamma(), gamma("b")], random_state=state)

    def test_an_unfitted_model(self):
        from sklearn.mixture import BayesianGaussianMixture

        with pytest.raises(KLFusionError, match="silo 'ward': expected a fitted"):
            kf.fuse({"ward": BayesianGaussianMixture()})

    @pytest.mark.parametrize("method", ["auto", "binary"])
    def test_more_components_than_memory_allows(self, method, monkeypatch):
        monkeypatch.setattr(running, "available_bytes", lambda: 100)
        with pytest.raises(KLFusionError, match=r"needs .* GB of memory, .* GB are free: use"):
            kf.fuse(rate_silos()[0], method=method)

    def test_a_cost_matrix_larger_than_memory(self, monkeypatch):
        monkeypatch.setattr(running, "available_bytes", lambda: 100)
        with pytest.raises(KLFusionError, match=r"matrix of divergences needs"):
            kf.fuse(rate_silos()[0], method=Binary(penalty=1.0))

    def test_stopping_early_is_told(self):
        silos, _ = normal_wishart_silos(noise=2.0, n_silos=12)
        status = kf.fuse(silos, method=Relaxed(max_iter=1)).status
        assert status is kf.Status.MAX_ITER
        assert "raise max_iter" in str(status)

    def test_configurations_are_frozen_and_checked(self):
        with pytest.raises(AttributeError):
            Binary().n_init = 3
        with pytest.raises(KLFusionError):
            replace(Binary(), n_init=0)


class TestFusion:
    @pytest.mark.parametrize("component", [-1, 2, 99, 1.5, True, "a"])
    def test_sources_of_what_is_no_component(self, component):
        with pytest.raises(
            KLFusionError, match=r"expected a global component, .* from 0 to 1, got"
        ):
            kf.fuse([gamma(), gamma("b")]).sources(component)

    @pytest.mark.parametrize("penalty", [np.nan, np.inf, -1, "a", True])
    def test_penalty_of_another_size(self, penalty):
        with pytest.raises(KLFusionError, match="expected penalty to be a number >= 0"):
            kf.fuse([gamma(), gamma("b")]).at(penalty=penalty)

    @pytest.mark.parametrize("size", [2.0, True, "2", 9])
    def test_another_size(self, size):
        with pytest.raises(KLFusionError, match="expected n_components from 2 to 4"):
            kf.fuse([gamma(), gamma("b")]).at(n_components=size)

    def test_rematch(self):
        fusion = kf.fuse([gamma(), gamma("b")])
        for change in (lambda: fusion.add(gamma("c"), rematch="no"),
                       lambda: fusion.remove("b", rematch="no")):  # fmt: skip
            with pytest.raises(KLFusionError, match="expected rematch to be True or False"):
                change()

    def test_report_of_silos_that_are_none(self, tmp_path):
        for silos in ([3], 3, gamma()):
            with pytest.raises(KLFusionError, match="silos: expected a list of the posteriors fus"):
                kf.fuse([gamma(), gamma("b")]).report(tmp_path / "x.html", silos=silos)


class TestDiagnose:
    @pytest.mark.parametrize("resamples", ["a", -1, 1.5, True])
    def test_resamples(self, resamples):
        with pytest.raises(KLFusionError, match="expected resamples to be an integer >= 0"):
            kf.diagnose(kf.fuse([gamma(), gamma("b")]), resamples=resamples)

    def test_random_state(self):
        with pytest.raises(KLFusionError, match="expected random_state to be an integer >= 0"):
            kf.diagnose(kf.fuse([gamma(), gamma("b")]), random_state="a")

    def test_not_a_fusion(self):
        with pytest.raises(KLFusionError, match=r"expected a Fusion, .*, got Posterior\('site-a'"):
            kf.diagnose(gamma())


class TestNetworks:
    @staticmethod
    def network(*sizes, seed=0):
        rng = np.random.default_rng(seed)
        shapes = {f"fc{i}": (b, a + 1) for i, (a, b) in enumerate(pairwise(sizes))}
        return {key: (rng.normal(size=s), np.full(s, 0.01)) for key, s in shapes.items()}

    def test_no_advice_that_cannot_be_followed(self):
        two = {name: self.network(2, 8, 3, seed=k) for k, name in enumerate("ab")}
        with pytest.raises(IncompatibleSilosError, match=r">= 8, .* \(its components stay apart\)"):
            kf.fuse(two, n_components=5)
        with pytest.raises(KLFusionError, match="networks are fused without max_loss"):
            kf.fuse(two, method=kf.MaxLoss(0.1))

    @pytest.mark.parametrize(
        ("sizes", "message"),
        [
            ((2, 8, 8, 3), "'b': expected a network with 1 hidden layer as in silo 'a', got 2"),
            ((2, 8, 4), "'b': expected a network with 3 outputs as in silo 'a', got 4"),
        ],
    )
    def test_other_shapes(self, sizes, message):
        with pytest.raises(IncompatibleSilosError, match=message):
            kf.fuse({"a": self.network(2, 8, 3), "b": self.network(*sizes)})

    @pytest.mark.parametrize(
        ("setting", "message"),
        [
            ({"random_state": "a"}, "expected random_state to be an integer >= 0"),
            ({"epochs": "a"}, "expected epochs to be an integer >= 1"),
            ({"prior_sd": "a"}, "expected prior_sd to be a finite number > 0"),
        ],
    )
    def test_learners(self, setting, message):
        pytest.importorskip("torch")
        with pytest.raises(KLFusionError, match=message):
            kf.learners.MeanFieldBNN(**setting).fit([[0.0], [1.0]], [0, 1])


def test_a_row_in_place_of_columns():
    model = kf.learners.MixedMixture(n_components=1, random_state=0)
    model.fit({"age": [50.0, 60.0, 70.0, 65.0]})
    for cell in (71.0, "old"):
        with pytest.raises(KLFusionError, match="column 'age': expected a list of cells"):
            model.predict_proba({"age": cell})


def test_no_rate_of_false_matches_without_probabilities():
    rates = kf.families.Gamma()
    silos = [kf.Posterior(rates, rates.natural([30, 900], [10, 10]), name=n) for n in "ab"]
    method = kf.Auto(false_matches=0.05)
    assert kf.fuse(silos, method=method).n_components == 2
    with pytest.raises(KLFusionError, match=r"with n_components: expected .* without fal"):
        kf.fuse(silos, n_components=2, method=method)


class TestMethods:
    @pytest.mark.parametrize(
        ("make", "message"),
        [
            (lambda: kf.Relaxed(scale="a"), "expected scale to be a number > 0, got 'a'"),
            (lambda: kf.Relaxed(scale=-1), "expected scale to be a number > 0, got -1"),
            (lambda: kf.Relaxed(n_candidates="a"), "expected n_candidates to be an integer >= 1"),
            (lambda: kf.Networks(within=2), "expected within to be a number > 0 and < 1, got 2"),
            (lambda: kf.Networks(loss="a"), "expected loss to be a finite number >= 0"),
            (lambda: kf.MaxLoss(within_silos="x"), "expected within_silos to be True or False"),
            (lambda: kf.Homogeneous(leave_one_out=3), "expected leave_one_out to be True or False"),
        ],
    )
    def test_settings_are_checked_when_they_are_given(self, make, message):
        with pytest.raises(KLFusionError, match=message):
            make()

    def test_errors_repeat_no_table_of_data(self):
        rows = np.full((50, 3), 123.456)
        with pytest.raises(KLFusionError, match=r"got ndarray of shape \(50, 3\)") as found:
            kf.fuse([gamma(), gamma("b")], n_components=rows)
        assert "123.456" not in str(found.value)
        with pytest.raises(KLFusionError, match="got list of length 50"):
            kf.Auto(n_init=rows.tolist())


WRONG = {
    "as_prior": lambda f: f.as_prior([]),
    "model": lambda f: f.model(predictive=np.array([])),
    "Fusion": lambda f: replace(f, labels=None),
    "labels of numbers": lambda f: replace(f, labels="x"),
    "names": lambda f: replace(f, silo_names=3),
    "audit": lambda f: kf.audit(gamma(), np.array(3), fit=lambda x: x),
    "audit with no function": lambda f: kf.audit(gamma(), np.ones((4, 2)), fit=3),
    "coefficients": lambda f: kf.coefficients([1.0], [[1.0]], None, name="a"),
    "coefficients of an array": lambda f: kf.coefficients([1.0], [[1.0]], np.array(3), name="a"),
    "coefficients of text": lambda f: kf.coefficients([1.0, 2.0], np.eye(2), "xy", name="a"),
    "mean": lambda f: kf.coefficients(f, [[1.0]], ["x"], name="a"),
    "family": lambda f: kf.families.family_from_config(3),
    "family of text": lambda f: kf.families.family_from_config("x"),
    "site": lambda f: kf.federation.Site("\ud800"),
    "column": lambda f: kf.learners.Column("x", np.array([])),
    "damping": lambda f: kf.refine_rounds({}, damping=None),
    "rounds": lambda f: kf.refine_rounds({}, rounds=True),
    "sites": lambda f: kf.refine_rounds([1]),
    "fits": lambda f: kf.refine_rounds({"a": 1}),
    "report": lambda f: kf.report.write_report(None, "x.html"),
}


@pytest.mark.parametrize("wrong", WRONG.values(), ids=[*WRONG])
def test_wrong_types_are_told(wrong):
    """Found by calls of all public functions with 43 odd values for each of their arguments."""
    with pytest.raises(KLFusionError, match="expected "):
        wrong(kf.fuse([gamma("a"), gamma("b")]))
