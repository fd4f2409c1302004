"""hmmlearn's variational HMMs: out, and back again."""

from __future__ import annotations

import logging

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import load_digits
from threadpoolctl import threadpool_limits

import klfusion as kf
from klfusion.adapters import rebuild
from klfusion.errors import IncompatibleSilosError, KLFusionError
from klfusion.posteriors.structure import Structure, fuse_structures

vhmm = pytest.importorskip("hmmlearn.vhmm")

COVARIANCES = ["full", "diag", "spherical", "tied"]
KINDS = [*COVARIANCES, "categorical"]
MEANS = np.array([[-5.0, 0.0], [0.0, 5.0], [5.0, 0.0], [0.0, -5.0]])
EMISSIONS = 0.02 + 0.8 * np.eye(4, 5) + 0.1 * np.eye(4, 5, 1)  # of symbol g, at times g + 1
SEEN = {"a": [0, 1], "b": [1, 2], "c": [2, 3, 0]}  # states each silo visits
LENGTHS = [40] * 6


def test_point_estimates_are_refused_by_what_to_fit_instead():
    hmm = pytest.importorskip("hmmlearn.hmm")
    with pytest.raises(KLFusionError, match=r"silo 'a': .* GaussianHMM: fit .*Variational"):
        kf.extract(hmm.GaussianHMM(2), name="a")


@pytest.fixture(autouse=True)
def quiet(caplog):
    """hmmlearn logs each time a bound falls by a rounding error."""
    caplog.set_level(logging.ERROR, logger="hmmlearn")


def simulate(kind, states, rng, lengths=LENGTHS, stay=0.85):
    """Sequences of a chain that stays, or moves to any other of its states."""
    path = []
    for length in lengths:
        state = rng.choice(states)
        for _ in range(length):
            path.append(state)
            if rng.random() > stay:
                state = rng.choice([s for s in states if s != state])
    if kind == "categorical":
        return np.array([[rng.choice(5, p=EMISSIONS[s])] for s in path])
    return MEANS[path] + rng.normal(size=(len(path), 2)) * [1.0, 0.5]


def fit(kind, n_components, x, lengths, starts=None, **settings):
    """The best of a few starts: hmmlearn's are random and often poor, most so without k-means."""
    starts = starts or {"categorical": 10}.get(kind, 3)
    settings = {"n_iter": 40, "tol": 1e-3, "implementation": "scaling", **settings}
    if kind == "categorical":
        make = vhmm.VariationalCategoricalHMM
        settings |= {"n_features": 5, "implementation": "log"}  # scaling underflows
    else:
        make = vhmm.VariationalGaussianHMM
        settings["covariance_type"] = kind
    with threadpool_limits(1):
        models = [
            make(n_components, random_state=seed, **settings).fit(x, lengths)
            for seed in range(starts)
        ]
    return max(models, key=lambda model: model.monitor_.history[-1])


def fitted(kind, n_components=3, states=(0, 1, 2), seed=0, **settings):
    x = simulate(kind, list(states), np.random.default_rng(seed))
    return fit(kind, n_components, x, LENGTHS, **settings)


def permuted(posterior, order, name):
    """The same model, its states in another order."""
    arrays = {
        key: array[np.ix_(*[order] * array.ndim)]
        for key, array in posterior.structure.arrays.items()
    }
    return kf.Posterior(
        posterior.family,
        posterior.natural[order],
        name=name,
        prior=posterior.prior,
        counts=posterior.counts[order],
        structure=Structure("hmm", arrays, posterior.structure.info),
    )


def same_predictions(one, other, x, lengths):
    assert one.score(x, lengths) == pytest.approx(other.score(x, lengths), rel=1e-8)
    np.testing.assert_array_equal(one.predict(x, lengths), other.predict(x, lengths))
    np.testing.assert_allclose(
        one.predict_proba(x, lengths), other.predict_proba(x, lengths), atol=1e-8
    )
    for algorithm in ("viterbi", "map"):
        (p, path), (q, other_path) = (m.decode(x, lengths, algorithm) for m in (one, other))
        assert p == pytest.approx(q, rel=1e-8)
        np.testing.assert_array_equal(path, other_path)


@pytest.mark.parametrize("kind", KINDS)
class TestRoundTrip:
    def test_a_rebuilt_model_predicts_the_same(self, kind, tmp_path):
        model = fitted(kind, algorithm="map", implementation="log", starts=1)
        kf.save(tmp_path / "site.safetensors", kf.extract(model, name="site"))
        again = rebuild(kf.load(tmp_path / "site.safetensors"))
        assert type(again) is type(model)
        assert (again.algorithm, again.implementation) == ("map", "log")
        x = simulate(kind, [0, 1, 2], np.random.default_rng(9))
        same_predictions(again, model, x, LENGTHS)
        for one, other in zip(again.sample(20, 0), model.sample(20, 0), strict=True):
            np.testing.assert_allclose(one, other, atol=1e-8)
        for key in vars(model):
            if key.endswith(("_prior_", "_posterior_")):
                np.testing.assert_allclose(
                    getattr(again, key), getattr(model, key), rtol=1e-8, atol=1e-10, err_msg=key
                )

    def test_one_silo_is_returned_as_it_is(self, kind):
        model = fitted(kind)
        fused, x = (
            kf.fuse({"a": model}).model(),
            simulate(kind, [0, 1, 2], np.random.default_rng(9)),
        )
        assert fused.score(x, LENGTHS) == pytest.approx(model.score(x, LENGTHS), rel=1e-6)
        if kind != "categorical":
            np.testing.assert_allclose(
                np.sort(fused.dof_posterior_, axis=None), np.sort(model.dof_posterior_, axis=None)
            )

    def test_permuted_copies_fuse_to_the_model(self, kind):
        model = fitted(kind)
        silo = kf.extract(model, name="a")
        order = np.array([2, 0, 1])
        fusion = kf.fuse([silo, permuted(silo, order, "b")], pooling="average")
        assert fusion.n_components == 3
        np.testing.assert_array_equal(fusion.labels[0][order], fusion.labels[1])
        back = np.argsort(fusion.labels[0])
        np.testing.assert_allclose(fusion.posterior.natural, silo.natural[back], rtol=1e-9)
        arrays, local = fusion.posterior.structure.arrays, silo.structure.arrays
        np.testing.assert_allclose(arrays["start"], 2 * local["start"][back])
        np.testing.assert_allclose(
            arrays["transition"], 2 * local["transition"][np.ix_(back, back)]
        )
        np.testing.assert_allclose(arrays["transition_prior"], local["transition_prior"])
        x = simulate(kind, [0, 1, 2], np.random.default_rng(9))
        # The prior of the transitions counts half as much with twice the data.
        assert fusion.model().score(x, LENGTHS) == pytest.approx(model.score(x, LENGTHS), rel=0.01)

    def test_a_rebuilt_model_can_be_cloned_and_refitted(self, kind):
        x = simulate(kind, [0, 1, 2], np.random.default_rng(0))
        model = kf.fuse({"a": fitted(kind, starts=1)}).model()
        with threadpool_limits(1):
            again = clone(model).set_params(random_state=0, n_iter=5).fit(x, LENGTHS)
        assert np.isfinite(again.score(x, LENGTHS))

    def test_fused_silos_have_the_states_of_all(self, kind):
        rng = np.random.default_rng(0)
        train, test = (
            {name: simulate(kind, states, rng) for name, states in SEEN.items()} for _ in range(2)
        )
        models = {name: fit(kind, len(SEEN[name]), x, LENGTHS) for name, x in train.items()}
        fusion = kf.fuse(models)
        assert fusion.n_components == 4
        x, lengths = np.concatenate([*test.values()]), LENGTHS * 3
        score = {name: model.score(x, lengths) / len(x) for name, model in models.items()}
        score["pooled"] = fit(kind, 4, np.concatenate([*train.values()]), lengths).score(x, lengths)
        score["pooled"] /= len(x)
        score["fused"] = fusion.model().score(x, lengths) / len(x)
        print(kind, {name: round(value, 3) for name, value in score.items()})  # noqa: T201
        assert score["fused"] > max(score[name] for name in models)
        assert score["fused"] > score["pooled"] - 0.05

    def test_one_state(self, kind):
        model = fitted(kind, n_components=1, starts=1)
        x = simulate(kind, [0, 1], np.random.default_rng(1))
        same_predictions(rebuild(kf.extract(model, name="a")), model, x, LENGTHS)
        fusion = kf.fuse({"a": model, "b": model}, n_components=1, pooling="average")
        same_predictions(fusion.model(), model, x, LENGTHS)

    def test_nothing_grows_with_the_data(self, kind):
        rng, sizes = np.random.default_rng(0), []
        for lengths in ([60], [60] * 10):
            model = fit(kind, 2, simulate(kind, [0, 1], rng, lengths), lengths, starts=1, n_iter=5)
            silo = kf.extract(model, name="a")
            arrays = [silo.natural, silo.prior, silo.counts, *silo.structure.arrays.values()]
            sizes.append(sum(array.size for array in arrays))
        assert sizes[0] == sizes[1]

    def test_counts_are_expected_visits(self, kind):
        assert kf.extract(fitted(kind, starts=1), name="a").counts.sum() == pytest.approx(240)

    def test_a_model_that_was_not_fitted(self, kind):
        categorical = kind == "categorical"
        name = "VariationalCategoricalHMM" if categorical else "VariationalGaussianHMM"
        with pytest.raises(KLFusionError, match=f"silo 'a': expected a fitted {name}; call fit"):
            kf.extract(getattr(vhmm, name)(2), name="a")


@pytest.mark.slow
def test_handwriting():
    """Digits as sequences of eight rows of pixels: silos that saw other digits."""
    digits = load_digits()
    rows = digits.images.reshape(-1, 8, 4, 2).sum(axis=-1)
    rows = rows + np.random.default_rng(0).uniform(size=rows.shape)  # whole numbers have no density
    quarter = np.arange(len(rows)) % 4

    def sequences(which):
        return rows[which].reshape(-1, 4), [8] * int(which.sum())

    def local(n_components, which):
        return fit("full", n_components, *sequences(which), starts=1, n_iter=30)

    models = {
        f"digits {a} and {a + 1}": local(5, (quarter == 1) & (digits.target // 2 == a // 2))
        for a in range(0, 10, 2)
    }
    fusion = kf.fuse(models)
    x, lengths = sequences(quarter == 0)
    score = {name: model.score(x, lengths) / len(x) for name, model in models.items()}
    score["pooled"] = local(fusion.n_components, quarter == 1).score(x, lengths) / len(x)
    score["fused"] = fusion.model().score(x, lengths) / len(x)
    print(fusion.n_components, {name: round(value, 3) for name, value in score.items()})  # noqa: T201
    assert score["fused"] > max(score[name] for name in models) + 0.3
    assert score["fused"] > score["pooled"] - 0.1


class TestStructure:
    def hmm(self, start, transition, start_prior, transition_prior, **info):
        arrays = {"start": start, "transition": transition}
        arrays |= {"start_prior": start_prior, "transition_prior": transition_prior}
        return Structure("hmm", {key: np.array(value) for key, value in arrays.items()}, info)

    def test_steps_between_states_of_different_silos_have_the_prior_alone(self):
        a = self.hmm([3.0, 1.0], [[5.0, 2.0], [1.0, 4.0]], [0.5, 0.5], [[9.0, 0.5], [0.5, 9.0]])
        b = self.hmm([2.0, 7.0], [[6.0, 3.0], [8.0, 1.0]], [1.5, 0.5], [[7.0, 0.3], [0.3, 7.0]])
        labels = [np.array([0, 1]), np.array([1, 2])]
        fused = fuse_structures([a, b], labels, 3).arrays
        np.testing.assert_array_equal(fused["start"], [3, 3, 7])
        np.testing.assert_array_equal(fused["transition"], [[5, 2, 0], [1, 10, 3], [0, 8, 1]])
        np.testing.assert_array_equal(fused["start_prior"], [0.5, 1.0, 0.5])
        np.testing.assert_array_equal(
            fused["transition_prior"], [[9, 0.5, 0.3], [0.5, 8, 0.3], [0.3, 0.3, 7]]
        )

    def test_states_left_out_take_their_steps_along(self):
        a = self.hmm([3.0, 1.0], [[5.0, 2.0], [1.0, 4.0]], [0.5, 0.5], [[1.0, 1.0], [1.0, 1.0]])
        fused = fuse_structures([a], [np.array([-1, 0])], 1).arrays
        assert fused["start"] == [1.0]
        assert fused["transition"] == [[4.0]]

    def test_silos_of_two_covariance_types(self):
        """Full and tied models have components of one family."""
        models = {"a": fitted("full", starts=1), "b": fitted("tied", starts=1)}
        with pytest.raises(IncompatibleSilosError, match="covariance_type 'full' as in silo 'a'"):
            kf.fuse(models)


def test_states_with_priors_of_their_own():
    x = simulate("full", [0, 1], np.random.default_rng(0))
    model = fit("full", 2, x, LENGTHS, starts=1, means_prior=MEANS[:2])
    with pytest.raises(KLFusionError, match=r"silo 'a': expected one prior .* of all states"):
        kf.extract(model, name="a")


def test_an_unknown_covariance_type():
    model = fitted("full", starts=1)
    model.covariance_type = "low-rank"
    with pytest.raises(KLFusionError, match="one of full, tied, diag, spherical, got 'low-rank'"):
        kf.extract(model, name="a")


def test_a_posterior_without_transitions():
    silo = kf.extract(fitted("full", starts=1), name="a")
    bare = kf.Posterior(silo.family, silo.natural, name="a", structure=silo.structure)
    with pytest.raises(KLFusionError, match="'a': expected an HMM with its transitions"):
        rebuild(bare)
