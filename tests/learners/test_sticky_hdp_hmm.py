"""The learner: its states, its errors, and the fused model."""

from __future__ import annotations

import tracemalloc
from itertools import pairwise

import numpy as np
import pytest
from scipy.stats import multivariate_t
from sklearn.base import clone
from sklearn.metrics import adjusted_rand_score

import klfusion as kf
from klfusion.adapters import rebuild
from klfusion.errors import KLFusionError
from klfusion.learners import StickyHDPHMM
from klfusion.learners._inference import Frames, statistics_of

MEANS = np.array([[-6.0, 0.0, 0.0], [0.0, 6.0, 0.0], [6.0, 0.0, 3.0], [0.0, -6.0, 0.0]])


def simulate(states, lengths, rng, stay=0.93, rho=0.0):
    """Frames and states of sticky chains; ``rho`` correlates frames that follow each other."""
    path, noise = [], []
    for length in lengths:
        state, deviation = rng.choice(states), rng.normal(size=3)
        for _ in range(length):
            path.append(state)
            noise.append(deviation)
            deviation = rho * deviation + np.sqrt(1 - rho**2) * rng.normal(size=3)
            if rng.random() > stay:
                state = rng.choice([s for s in states if s != state])
    return MEANS[path] + np.array(noise), np.array(path)


def learner(**settings):
    return StickyHDPHMM(**({"n_components": 8, "n_init": 2, "random_state": 0} | settings))


@pytest.fixture(scope="module")
def chain():
    lengths = [120, 80, 1, 99]
    x, path = simulate([0, 1, 2, 3], lengths, np.random.default_rng(0))
    return x, lengths, path


@pytest.fixture(scope="module")
def model(chain):
    return learner().fit(*chain[:2])


class TestLearning:
    def test_finds_the_states(self, chain, model):
        x, lengths, path = chain
        assert model.n_states_ == 4
        assert adjusted_rand_score(path, model.predict(x, lengths)) > 0.97
        nearest = np.linalg.norm(model.means_[:, None] - MEANS, axis=2).argmin(axis=0)
        np.testing.assert_allclose(model.means_[nearest], MEANS, atol=0.5)
        assert np.diag(model.transmat_).min() > 0.8
        assert model.converged_
        assert model.weights_.sum() == pytest.approx(1.0)

    @pytest.mark.parametrize("kappa", [0.0, 10.0])
    @pytest.mark.parametrize("frame_weight", ["auto", 1.0, 0.3])
    def test_the_bound_never_falls(self, kappa, frame_weight, chain):
        fitted = learner(kappa=kappa, frame_weight=frame_weight, n_init=1).fit(*chain[:2])
        assert min(b - a for a, b in pairwise(fitted.lower_bounds_)) > -1e-7
        assert fitted.lower_bound_ == fitted.lower_bounds_[-1]

    def test_more_starts_are_never_worse(self, chain):
        one, four = (learner(n_init=n, frame_weight=1.0).fit(*chain[:2]) for n in (1, 4))
        assert four.lower_bound_ >= one.lower_bound_

    def test_deterministic(self, chain, model):
        again = clone(model).fit(*chain[:2])
        np.testing.assert_array_equal(again.natural_, model.natural_)

    def test_units_do_not_matter(self, chain, model):
        x, lengths, _ = chain
        scaled = learner().fit(100.0 + 1e3 * x, lengths)
        np.testing.assert_array_equal(
            scaled.predict(100.0 + 1e3 * x, lengths), model.predict(x, lengths)
        )
        jacobian = model.frame_weight_ * len(x) * 3 * np.log(1e3)
        assert scaled.lower_bound_ == pytest.approx(model.lower_bound_ - jacobian, abs=1e-3)

    def test_frames_that_repeat_themselves_count_less(self):
        rng = np.random.default_rng(1)
        weights = [
            learner(n_init=1).fit(simulate([0, 2], [400], rng, rho=rho)[0]).frame_weight_
            for rho in (0.0, 0.8)
        ]
        assert weights[0] > 0.95
        # Cautious: estimated from a fit with states to spare, which follow the frames.
        assert (1 - 0.64) / (1 + 0.64) < weights[1] < 0.7

    def test_priors_as_given(self, chain):
        x, lengths, _ = chain
        fitted = learner(n0=7.0, S=2.0 * np.eye(3), mu0=[1.0, 2.0, 3.0], n_init=1).fit(x, lengths)
        prior = fitted.family_.params(fitted.prior_[None])
        np.testing.assert_allclose(prior["mean"], [[1, 2, 3]])
        np.testing.assert_allclose(prior["scale_inv"][0] / (7.0 - 4.0), 2.0 * np.eye(3), atol=1e-9)


class TestPredictions:
    def test_posterior_predictive(self, chain, model):
        x = chain[0][:5]
        p = model.family_.params(model.natural_)
        dof = p["dof"] - 2.0
        expected = [
            multivariate_t(
                p["mean"][k],
                p["scale_inv"][k] * (p["kappa"][k] + 1) / (p["kappa"][k] * dof[k]),
                df=dof[k],
            ).logpdf(x)
            for k in range(model.n_states_)
        ]
        np.testing.assert_allclose(model._log_density(x), np.transpose(expected), rtol=1e-9)

    def test_probabilities(self, chain, model):
        x, lengths, _ = chain
        posterior = model.predict_proba(x, lengths)
        np.testing.assert_allclose(posterior.sum(axis=1), 1.0)
        _, path = model.decode(x, lengths, algorithm="map")
        np.testing.assert_array_equal(path, posterior.argmax(axis=1))
        assert (path == model.predict(x, lengths)).mean() > 0.95

    def test_sequences_are_scored_apart(self, chain, model):
        x, lengths, _ = chain
        parts = np.split(x, np.cumsum(lengths)[:-1])
        assert model.score(x, lengths) == pytest.approx(sum(model.score(part) for part in parts))


class TestEdges:
    def test_sequences_of_one_frame(self):
        x = np.random.default_rng(0).normal(size=(40, 2)) + np.repeat([[0.0], [20.0]], 20, axis=0)
        fitted = learner().fit(x, [1] * 40)
        assert fitted.n_states_ == 2
        assert fitted.transition_counts_.sum() == pytest.approx(0.0, abs=1e-9)

    def test_one_frame(self):
        assert learner(n_init=4).fit([[1.0, 2.0]]).predict([[0.0, 0.0]]).tolist() == [0]

    def test_constant_channels(self, chain):
        x, lengths, path = chain
        x = np.column_stack([x, np.full(len(x), 7.0)])
        fitted = learner().fit(x, lengths)
        assert adjusted_rand_score(path, fitted.predict(x, lengths)) > 0.97
        assert learner().fit(np.full((30, 2), 5.0)).n_states_ == 1

    def test_memory_is_linear_in_length(self):
        """An iteration over 20,000 frames of 12 features; nothing of length squared."""
        rng = np.random.default_rng(0)
        used = []
        for length in (10_000, 20_000):
            x = rng.normal(size=(length, 12))
            labels = rng.integers(4, size=length)
            tracemalloc.start()
            sizes = np.array([length])
            frames = Frames.of(x, sizes)
            statistics = statistics_of(frames, labels, sizes)
            estimator = learner()
            model = estimator._model(np.zeros(12), np.ones(12))
            model.expect(frames, model.maximise(statistics))
            used.append(tracemalloc.get_traced_memory()[1])
            tracemalloc.stop()
        assert used[1] < 2.1 * used[0]
        assert used[1] < 20_000 * 12 * 8 * 60

    @pytest.mark.parametrize(
        ("x", "lengths", "message"),
        [
            ([1.0, 2.0], None, r"shape \(n_frames, n_features\), got \(2,\)"),
            ([["a"]], None, "X: expected an array of numbers"),
            ([[1.0], [np.nan]], None, "finite numbers, got nan in frame 1, feature 0"),
            ([[1.0], [2.0]], [3], "add up to 2 frames, got"),
            ([[1.0], [2.0]], [2, 0], "whole numbers >= 1"),
            ([[1.0], [2.0]], [1.0, 1.0], "whole numbers"),
        ],
    )
    def test_bad_sequences(self, x, lengths, message):
        with pytest.raises(KLFusionError, match=message):
            learner().fit(x, lengths)

    @pytest.mark.parametrize(
        ("settings", "message"),
        [
            ({"n_components": 0}, "expected n_components to be an integer >= 1, got 0"),
            ({"kappa": -1}, "expected kappa to be a finite number >= 0, got -1"),
            ({"eta": 0}, "expected eta to be a finite number > 0"),
            ({"n0": 3}, "expected n0 to be a finite number > 3, got 3"),
            ({"S": -np.eye(2)}, r"S: expected a symmetric positive definite \(2, 2\)"),
            ({"mu0": [0.0]}, "mu0: expected 2 finite numbers"),
            ({"frame_weight": "all"}, "expected frame_weight to be a finite number > 0, got 'all'"),
        ],
    )
    def test_bad_settings(self, settings, message):
        with pytest.raises(KLFusionError, match=message):
            learner(**settings).fit(np.random.default_rng(0).normal(size=(20, 2)))

    def test_not_fitted_and_other_features(self, model):
        with pytest.raises(KLFusionError, match="expected a fitted StickyHDPHMM; call fit"):
            learner().predict([[0.0]])
        with pytest.raises(KLFusionError, match="expected 3 features, as in fit, got 2"):
            model.score([[0.0, 1.0]])
        with pytest.raises(KLFusionError, match="'viterbi' or 'map', got 'best'"):
            model.decode([[0.0, 1.0, 2.0]], algorithm="best")


class TestFusion:
    def test_a_rebuilt_model_predicts_the_same(self, chain, model, tmp_path):
        x, lengths, _ = chain
        kf.save(tmp_path / "site.safetensors", kf.extract(model, name="site"))
        again = rebuild(kf.load(tmp_path / "site.safetensors"))
        assert again.score(x, lengths) == pytest.approx(model.score(x, lengths), rel=1e-9)
        np.testing.assert_array_equal(again.predict(x, lengths), model.predict(x, lengths))
        np.testing.assert_allclose(again.transmat_, model.transmat_)
        assert clone(again).set_params(n_init=1).fit(x, lengths).n_states_ >= 1

    def test_counts_are_expected_visits(self, chain, model):
        assert kf.extract(model, name="a").counts.sum() == pytest.approx(len(chain[0]))

    def test_fused_silos_have_the_states_of_all(self):
        rng, lengths = np.random.default_rng(4), [150, 150]
        seen = {"a": [0, 1], "b": [1, 2], "c": [2, 3, 0]}
        models = {n: learner().fit(simulate(s, lengths, rng)[0], lengths) for n, s in seen.items()}
        fusion = kf.fuse(models)
        assert fusion.n_components == 4
        x, path = simulate([0, 1, 2, 3], lengths, rng)
        fused = fusion.model()
        assert isinstance(fused, StickyHDPHMM)
        assert adjusted_rand_score(path, fused.predict(x, lengths)) > 0.95
        assert fused.score(x, lengths) > max(m.score(x, lengths) for m in models.values())
        weights = [m.frame_weight_ for m in models.values()]
        assert fused.frame_weight_ == pytest.approx(np.mean(weights))

    def test_not_fitted(self):
        with pytest.raises(KLFusionError, match="silo 'a': expected a fitted StickyHDPHMM"):
            kf.extract(learner(), name="a")

    def test_a_posterior_without_transitions(self, model):
        silo = kf.extract(model, name="a")
        bare = kf.Posterior(silo.family, silo.natural, name="a", structure=silo.structure)
        with pytest.raises(KLFusionError, match="'a': expected an HMM of Gaussian states"):
            rebuild(bare)

    def test_columns_in_another_order(self, chain):
        pandas = pytest.importorskip("pandas")
        x, lengths, _ = chain
        models = {
            name: learner(n_init=1).fit(pandas.DataFrame(x, columns=list(columns)), lengths)
            for name, columns in {"a": "xyz", "b": "zyx"}.items()
        }
        with pytest.raises(KLFusionError, match="silo 'b': expected the features"):
            kf.fuse(models)
