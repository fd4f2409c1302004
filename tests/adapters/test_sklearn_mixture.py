"""scikit-learn's mixtures: out, and back again."""

from __future__ import annotations

import re
import warnings
from dataclasses import replace

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import load_wine
from sklearn.mixture import BayesianGaussianMixture

import klfusion as kf
from klfusion.adapters import rebuild
from klfusion.errors import IncompatibleSilosError, KLFusionError
from klfusion.posteriors.structure import Structure

WEIGHTS = ["dirichlet_process", "dirichlet_distribution"]
COVARIANCES = ["full", "diag", "spherical", "tied"]


def data(seed=0, n=400):
    rng = np.random.default_rng(seed)
    centres = np.array([[-5.0, 0.0, 1.0], [5.0, 0.0, 0.0], [0.0, 6.0, -2.0]])
    return centres[rng.integers(3, size=n)] + rng.normal(size=(n, 3)) * [1.0, 0.3, 2.0]


def fitted(covariance="full", weights=WEIGHTS[0], seed=0, n_components=3):
    model = BayesianGaussianMixture(
        n_components=n_components,
        covariance_type=covariance,
        weight_concentration_prior_type=weights,
        random_state=seed,
        max_iter=500,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return model.fit(data(seed))


@pytest.mark.parametrize("weights", WEIGHTS)
@pytest.mark.parametrize("covariance", COVARIANCES)
class TestRoundTrip:
    def test_a_rebuilt_model_predicts_the_same(self, covariance, weights, tmp_path):
        model = fitted(covariance, weights, n_components=5)
        kf.save(tmp_path / "site.safetensors", kf.extract(model, name="site"))
        again = rebuild(kf.load(tmp_path / "site.safetensors"))
        x = data(seed=9)
        np.testing.assert_array_equal(again.predict(x), model.predict(x))
        np.testing.assert_allclose(again.predict_proba(x), model.predict_proba(x), atol=1e-8)
        np.testing.assert_allclose(again.score(x), model.score(x), rtol=1e-10)
        np.testing.assert_allclose(again.weights_, model.weights_, atol=1e-10)
        np.testing.assert_allclose(again.precisions_, model.precisions_, rtol=1e-8)

    def test_copies_fuse_to_the_model(self, covariance, weights):
        model = fitted(covariance, weights)
        fusion = kf.fuse({"a": model, "b": model})
        assert fusion.n_components == 3
        x = data(seed=9)
        np.testing.assert_allclose(
            np.sort(fusion.model().predict_proba(x), axis=1),
            np.sort(model.predict_proba(x), axis=1),
            atol=0.02,  # the weights' prior counts half as much with twice the data
        )

    def test_a_rebuilt_model_can_be_cloned_and_refitted(self, covariance, weights):
        model = kf.fuse({"a": fitted(covariance, weights)}).model()
        assert clone(model).fit(data()).converged_


def test_counts_are_the_expected_numbers_of_points():
    for weights in WEIGHTS:
        counts = kf.extract(fitted(weights=weights), name="a").counts
        np.testing.assert_allclose(counts.sum(), 400, rtol=1e-6)


@pytest.mark.parametrize("covariance", COVARIANCES)
class TestWine:
    """Chemical analyses of wines of three growers; no silo has seen all three."""

    SEEN = ((0, 1), (1, 2), (0, 2))

    def fit(self, x, n_components, covariance):
        return BayesianGaussianMixture(
            n_components=n_components, covariance_type=covariance, n_init=3, max_iter=500,
            random_state=0,
        ).fit(x)  # fmt: skip

    def test_fused_silos_have_all_growers(self, covariance):
        x, grower = load_wine(return_X_y=True)
        x = np.log(x[:, [0, 6, 9, 11, 12]])
        train = np.arange(len(x)) % 2 == 0
        models = {
            f"{a}+{b}": self.fit(x[train & np.isin(grower, [a, b])], 2, covariance)
            for a, b in self.SEEN
        }
        fusion = kf.fuse(models)
        score = {name: model.score(x[~train]) for name, model in models.items()}
        score["pooled"] = self.fit(x[train], 3, covariance).score(x[~train])
        score["fused"] = fusion.model().score(x[~train])
        rounded = {name: round(value, 3) for name, value in score.items()}
        print(covariance, fusion.n_components, rounded)  # noqa: T201
        assert fusion.n_components == 3
        assert score["fused"] > max(score[name] for name in models)

    def test_nothing_grows_with_the_data(self, covariance):
        x, sizes = data(n=600), []
        for n in (60, 600):
            silo = kf.extract(self.fit(x[:n], 2, covariance), name="a")
            arrays = [silo.natural, silo.prior, silo.counts, *silo.structure.arrays.values()]
            sizes.append(sum(array.size for array in arrays))
        assert sizes[0] == sizes[1]

    def test_one_component(self, covariance):
        x = np.random.default_rng(0).normal(size=(50, 3))
        model = self.fit(x, 1, covariance)
        both = {"a": model, "b": model}
        fused = kf.fuse(both, n_components=1, pooling="average").model()
        np.testing.assert_allclose(fused.covariances_, model.covariances_, rtol=1e-8)
        np.testing.assert_allclose(fused.means_, model.means_, rtol=1e-8)


def test_spherical_posteriors_are_conjugate():
    """What the data add to the prior are sums over points and dimensions."""
    x = np.random.default_rng(0).normal(size=(50, 3))
    model = BayesianGaussianMixture(covariance_type="spherical", reg_covar=0.0).fit(x)
    silo = kf.extract(model, name="a")
    added = silo.natural[0] - silo.prior
    np.testing.assert_allclose(added, [*x.sum(axis=0), 50, (x**2).sum(), 150], rtol=1e-8)


def test_the_scatter_of_tied_components_is_the_average():
    """As in the M-step of scikit-learn: the prior, and the scatter of all over their number."""
    silo = kf.extract(fitted("tied"), name="a")
    family, dof = silo.family, np.array([10.0, 20.0, 30.0])
    scatter = np.stack([np.eye(3) * scale for scale in (1.0, 2.0, 6.0)])
    structure = Structure(
        "mixture", {**silo.structure.arrays, "counts": [1.0, 1.0, 2.0]}, silo.structure.info
    )
    natural = family.natural(silo.params()["mean"], silo.params()["kappa"], scatter, dof)
    model = rebuild(replace(silo, natural=natural, structure=structure))
    assert model.degrees_of_freedom_ == pytest.approx(20.0)
    np.testing.assert_allclose(model.covariances_, np.eye(3) * 3.0 / 20.0, atol=1e-12)


@pytest.mark.parametrize("covariance_type", COVARIANCES)
def test_one_silo_is_returned_as_it_is(covariance_type):
    model = fitted(covariance_type, n_components=4)
    fused = kf.fuse({"a": model}).model()
    order, theirs = np.argsort(model.means_[:, 0]), np.argsort(fused.means_[:, 0])
    for key in ("means_", "mean_precision_", "degrees_of_freedom_", "covariances_"):
        here, there = getattr(model, key), getattr(fused, key)
        if covariance_type != "tied" or key in ("means_", "mean_precision_"):
            here, there = here[order], there[theirs]
        np.testing.assert_allclose(there, here, rtol=1e-8, atol=1e-10, err_msg=key)


def test_silos_of_two_covariance_types():
    """Full and tied models have components of one family."""
    with pytest.raises(
        IncompatibleSilosError, match=r"'b': .*_type 'full' as in silo 'a', got 'tied'"
    ):
        kf.fuse({"a": fitted("full"), "b": fitted("tied")})


def test_a_model_that_was_not_fitted():
    with pytest.raises(KLFusionError, match="silo 'a': expected a fitted BayesianGaussianMixture"):
        kf.extract(BayesianGaussianMixture(), name="a")


def test_an_unknown_covariance_type():
    model = fitted()
    model.covariance_type = "low-rank"
    with pytest.raises(KLFusionError, match="one of full, tied, diag, spherical, got 'low-rank'"):
        kf.extract(model, name="a")


def test_a_posterior_without_a_model_says_so():
    family = kf.families.Gamma()
    silo = kf.Posterior(family, family.natural(shape=[1.0], rate=[1.0]), name="a")
    with pytest.raises(KLFusionError, match="expected the package and class of a model"):
        kf.fuse([silo]).model()


def test_named_columns_must_agree_and_come_back():
    names = np.array(["age", "pressure", "dose"], dtype=object)
    a, b = fitted(), fitted(seed=1)
    a.feature_names_in_ = names
    b.feature_names_in_ = names[::-1]
    with pytest.raises(IncompatibleSilosError, match=r"silo 'b': expected the features \['age'"):
        kf.fuse({"a": a, "b": b})
    b.feature_names_in_ = names
    assert kf.fuse({"a": a, "b": b}).model().feature_names_in_.tolist() == names.tolist()


@pytest.mark.parametrize("covariance", ["full", "diag", "tied"])
def test_constant_columns_are_named(covariance):
    x = data()
    x[:, 1] = 0.05
    model = BayesianGaussianMixture(n_components=1, covariance_type=covariance).fit(x)
    with pytest.raises(KLFusionError, match=r"silo 'a': the prior .* \(columns \[1\] hardly vary"):
        kf.extract(model, name="a")


def test_fewer_rows_than_columns_say_so():
    x = np.random.default_rng(0).normal(size=(4, 9))
    model = BayesianGaussianMixture(n_components=1).fit(x)
    with pytest.raises(KLFusionError, match=r"no more rows than columns.*pass the same covariance"):
        kf.extract(model, name="a")


@pytest.mark.parametrize("column", [lambda x: x[:, 0], lambda x: x[:, 0] - 2 * x[:, 2]])
def test_columns_that_depend_on_each_other_are_named(column):
    x = data()
    extra = column(x)
    model = BayesianGaussianMixture(n_components=1).fit(np.column_stack([x, extra]))
    which = [0, 3] if (extra == x[:, 0]).all() else [0, 2, 3]
    with pytest.raises(KLFusionError, match=rf"columns {re.escape(str(which))} depend on each oth"):
        kf.extract(model, name="a")


class TestModelsThatCannotBe:
    def test_means_beyond_double_precision_name_the_silo(self):
        far = BayesianGaussianMixture(n_components=1).fit(data() + 1e8)
        huge = fitted()
        huge.means_[0, 0] = 1e200
        for model in (far, huge):
            with pytest.raises(KLFusionError, match="silo 'jan', component 0: the mean in dimens"):
                kf.extract(model, name="jan")

    @pytest.mark.parametrize("covariance", ["full", "tied"])
    def test_covariances_that_are_not_symmetric(self, covariance):
        model = fitted(covariance)
        model.covariances_[..., 0, 1] += 0.7
        with pytest.raises(KLFusionError, match="silo 'a', component 0: expected a symmetric"):
            kf.extract(model, name="a")


def test_the_number_of_observations_may_be_given():
    model = fitted()
    known = kf.extract(model, name="a")
    n = round(known.counts.sum())
    np.testing.assert_array_equal(
        kf.extract(model, name="a", n_observations=n).natural, known.natural
    )
    with pytest.raises(KLFusionError, match=f"'a': expected n_observations={n}, what .* got 7"):
        kf.extract(model, name="a", n_observations=7)
    with pytest.raises(KLFusionError, match=r"'a': .*Mixture takes no words; .* n_observations"):
        kf.extract(model, name="a", words=["x"])


def test_columns_without_a_usable_spread_are_named():
    pd = pytest.importorskip("pandas")
    rng = np.random.default_rng(0)
    x = pd.DataFrame(rng.normal(size=(100, 3)), columns=["age", "sex", "income"])

    def sent(frame):
        return kf.extract(BayesianGaussianMixture(random_state=0).fit(frame), name="a")

    far = "silo 'a', component 0: the mean of column 'income' lies so far from the origin"
    cases = {
        far: x.assign(income=x["income"] + 1e8),
        r"columns \['sex'\] hardly vary": x.assign(sex=1.0),
        r"columns \['age', 'sex'\] depend on each other": x.assign(sex=x["age"]),
    }
    for message, frame in cases.items():
        with pytest.raises(KLFusionError, match=message):
            sent(frame)
