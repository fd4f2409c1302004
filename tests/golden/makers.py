"""Silos of the golden problems, made with numpy alone.

Nothing is trained here but in `sticky_hmm`. A model is given the attributes that training would
give it, so that no version of another library changes a problem.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
from sklearn.decomposition import LatentDirichletAllocation
from sklearn.mixture import BayesianGaussianMixture, GaussianMixture

import klfusion as kf


def rounded(values):
    """The same bits on every machine.

    Linear algebra differs between processors in its last digits. `fuse` sorts silos by a digest of
    their bytes before anything is drawn at random, so another digit would be another problem.
    """
    return np.round(values, 8)


# Mixtures ---------------------------------------------------------------------------------


def observations(n_silos=3, n_true=4, dim=2, seed=0, n_points=150, spacing=5.0, shift=0.1):
    """Observations of each silo, and the cluster of each; a silo holds two clusters at least."""
    rng = np.random.default_rng(seed)
    centres = spacing * rng.normal(size=(n_true, dim))
    silos = []
    for _ in range(n_silos):
        held = np.sort(rng.permutation(n_true)[: rng.integers(2, n_true + 1)])
        cluster = rng.choice(held, size=n_points)
        moved = centres + shift * rng.normal(size=centres.shape)
        silos.append((moved[cluster] + rng.normal(size=(n_points, dim)), cluster))
    return silos


def compact(cluster):
    """Clusters numbered from 0 without gaps, as the components of a local fit are."""
    return np.unique(cluster, return_inverse=True)[1]


def halved(x, cluster):
    """The largest cluster cut in two along the first axis: what an over-fitted mixture does."""
    cut = compact(cluster)
    largest = np.bincount(cut).argmax()
    cut[(cut == largest) & (x[:, 0] > np.median(x[cut == largest, 0]))] = cut.max() + 1
    return cut


def moments(x, cluster, n_components):
    """Counts, means and covariances of the observations of each component; zero for none."""
    shares = np.eye(n_components)[cluster]
    counts = shares.sum(axis=0)
    divisor = np.maximum(counts, 1.0)[:, None]
    means = shares.T @ x / divisor
    away = x - means[cluster]
    scatter = np.einsum("nk,ni,nj->kij", shares, away, away)
    return counts, rounded(means), rounded(scatter / divisor[:, None])


def of_type(covariances, counts, covariance_type):
    """Covariances (n, d, d) in scikit-learn's shape for a type."""
    diagonal = np.diagonal(covariances, axis1=1, axis2=2)
    return {
        "full": covariances,
        "tied": np.tensordot(counts, covariances, axes=1) / counts.sum(),
        "diag": diagonal,
        "spherical": diagonal.mean(axis=1),
    }[covariance_type]


def point_mixture(x, cluster, covariance_type):
    """A `GaussianMixture` with the moments of the given clusters."""
    n_components = int(cluster.max()) + 1
    counts, means, covariances = moments(x, cluster, n_components)
    model = GaussianMixture(n_components, covariance_type=covariance_type)
    model.weights_, model.means_ = counts / counts.sum(), means
    model.covariances_ = rounded(of_type(covariances, counts, covariance_type))
    return model


def bayesian_mixture(x, cluster, covariance_type, empty=0, process=False):
    """A `BayesianGaussianMixture` after one exact update with the given clusters.

    ``empty`` components without observations follow the others.
    """
    n_components, dim = int(cluster.max()) + 1 + empty, x.shape[1]
    counts, means, covariances = moments(x, cluster, n_components)
    kind = "dirichlet_process" if process else "dirichlet_distribution"
    model = BayesianGaussianMixture(
        n_components=n_components,
        covariance_type=covariance_type,
        weight_concentration_prior_type=kind,
    )
    model.weight_concentration_prior_ = 1.0 / n_components
    if process:
        after = counts.sum() - np.cumsum(counts)
        model.weight_concentration_ = (1.0 + counts, model.weight_concentration_prior_ + after)
    else:
        model.weight_concentration_ = model.weight_concentration_prior_ + counts
    model.mean_precision_prior_, model.mean_prior_ = 1.0, rounded(x.mean(axis=0))
    model.degrees_of_freedom_prior_ = float(dim)
    spread = rounded(np.cov(x.T))
    model.covariance_prior_ = {
        "full": spread, "tied": spread, "diag": np.diag(spread), "spherical": np.diag(spread).mean()
    }[covariance_type]  # fmt: skip
    model.mean_precision_ = 1.0 + counts
    model.means_ = (model.mean_prior_ + counts[:, None] * means) / model.mean_precision_[:, None]
    away = means - model.mean_prior_
    scatter = counts[:, None, None] * covariances
    scatter += np.einsum("k,ki,kj->kij", counts / model.mean_precision_, away, away)
    diagonal = np.diagonal(scatter, axis1=1, axis2=2)
    model.degrees_of_freedom_ = dim + counts
    if covariance_type == "tied":
        model.degrees_of_freedom_ = dim + counts.sum() / n_components
        total = spread + scatter.sum(axis=0) / n_components
        model.covariances_ = total / model.degrees_of_freedom_
    elif covariance_type == "full":
        model.covariances_ = (spread + scatter) / model.degrees_of_freedom_[:, None, None]
    elif covariance_type == "diag":
        total = np.diag(spread) + diagonal
        model.covariances_ = total / model.degrees_of_freedom_[:, None]
    else:
        total = np.diag(spread).mean() + diagonal.mean(axis=1)
        model.covariances_ = total / model.degrees_of_freedom_
    model.means_, model.covariances_ = rounded(model.means_), rounded(model.covariances_)
    return model


def bayesian_silos(covariance_type, seed=0, **settings):
    return {
        f"silo-{j}": bayesian_mixture(x, compact(cluster), covariance_type)
        for j, (x, cluster) in enumerate(observations(seed=seed, **settings))
    }


def point_silos(covariance_type, seed=1):
    return [
        kf.extract(
            point_mixture(x, compact(cluster), covariance_type),
            name=f"silo-{j}",
            n_observations=len(x),
        )
        for j, (x, cluster) in enumerate(observations(seed=seed))
    ]


def over_fitted_silos(covariance_type, process=False, seed=2):
    """Each silo has one cluster in halves and two components without observations."""
    return {
        f"silo-{j}": bayesian_mixture(x, halved(x, cluster), covariance_type, 2, process)
        for j, (x, cluster) in enumerate(observations(n_silos=4, seed=seed))
    }


def over_fitted_points(seed=3):
    """Many observations, of which a `GaussianMixture` has made one component too many."""
    return [
        kf.extract(
            point_mixture(x, halved(x, cluster), "full"), name=f"silo-{j}", n_observations=len(x)
        )
        for j, (x, cluster) in enumerate(observations(n_silos=4, n_points=600, seed=seed))
    ]


def mixed_silos(seed=4):
    """Four of twelve silos have two clusters in one component, which the others separate."""
    rng = np.random.default_rng(seed)
    family = kf.families.DiagonalNormal(20)
    centres = rng.normal(size=(3, 20))
    silos = []
    for j in range(12):
        mean = centres + 0.3 * rng.normal(size=centres.shape)
        if j < 4:
            mean = np.stack([mean[:2].mean(axis=0), mean[2]])
        natural = rounded(family.natural(mean, np.full(mean.shape, 0.05)))
        silos.append(kf.Posterior(family, natural, name=f"silo-{j}"))
    return silos


def small_components(seed=3):
    """Two of four clusters have few observations: 3 to 6, and 8 to 15, of about 145."""
    rng = np.random.default_rng(seed)
    centres = 6.0 * rng.normal(size=(4, 2))
    models = {}
    for j in range(4):
        cluster = np.repeat(np.arange(4), [70, 60, rng.integers(3, 7), rng.integers(8, 16)])
        x = centres[cluster] + rng.normal(size=(len(cluster), 2))
        models[f"silo-{j}"] = bayesian_mixture(x, cluster, "full")
    return models


def unequal_silos(seed=5):
    """Silos of 30 to 3,000 observations, whose clusters vary between silos."""
    rng = np.random.default_rng(seed)
    centres = 6.0 * rng.normal(size=(4, 2))
    models = {}
    for j, n in enumerate((30, 100, 300, 1000, 3000)):
        cluster = rng.integers(4, size=n)
        moved = centres + 0.5 * rng.normal(size=centres.shape)
        models[f"silo-{j}"] = bayesian_mixture(
            moved[cluster] + rng.normal(size=(n, 2)), compact(cluster), "full"
        )
    return models


# Posteriors of any family ------------------------------------------------------------------


def rotated(rng, n, dim, spread=0.5):
    """Positive definite matrices with eigenvalues around one."""
    basis = np.linalg.qr(rng.normal(size=(n, dim, dim)))[0]
    matrices = (basis * np.exp(spread * rng.normal(size=(n, 1, dim)))) @ basis.transpose(0, 2, 1)
    return 0.5 * (matrices + matrices.transpose(0, 2, 1))


def positive(rng, size, spread):
    return np.exp(spread * rng.normal(size=size))


def beta(rng, n, dim):
    return {"a": positive(rng, (n, dim), 1.5), "b": positive(rng, (n, dim), 1.5)}


def categorical(rng, n, dim):
    return {"probability": rng.dirichlet(np.full(dim, 0.5), size=n) + 1e-3}


def diagonal_normal(rng, n, dim):
    return {"mean": 3.0 * rng.normal(size=(n, dim)), "variance": positive(rng, (n, dim), 0.3)}


def dirichlet(rng, n, dim):
    return {"concentration": rng.dirichlet(np.full(dim, 0.3), size=n) + 1e-3}


def gamma(rng, n, dim):
    return {"shape": positive(rng, (n, dim), 2.0), "rate": np.ones((n, dim))}


def inverse_gamma(rng, n, dim):
    return {"shape": np.ones((n, dim)), "scale": positive(rng, (n, dim), 2.0)}


def isotropic_normal_gamma(rng, n, dim):
    mean, rate = 4.0 * rng.normal(size=(n, dim)), positive(rng, n, 0.3)
    return {"mean": mean, "kappa": np.ones(n), "shape": 0.5 * np.ones(n), "rate": rate}


def normal_gamma(rng, n, dim):
    mean, rate = 4.0 * rng.normal(size=(n, dim)), positive(rng, (n, dim), 0.3)
    return {"mean": mean, "kappa": np.ones(n), "shape": 0.5 * np.ones(n), "rate": rate}


def normal(rng, n, dim):
    return {"mean": 3.0 * rng.normal(size=(n, dim)), "covariance": rotated(rng, n, dim)}


def normal_wishart(rng, n, dim):
    mean, scatter = 4.0 * rng.normal(size=(n, dim)), rotated(rng, n, dim)
    return {"mean": mean, "kappa": np.ones(n), "scale_inv": scatter, "dof": np.ones(n)}


def wishart(rng, n, dim):
    return {"scale_inv": rotated(rng, n, dim, 1.2), "dof": np.ones(n)}


# The parameters of ``n`` components that differ clearly, per observation, by the family's class.
COMPONENTS = {
    "Beta": beta,
    "Categorical": categorical,
    "DiagonalNormal": diagonal_normal,
    "Dirichlet": dirichlet,
    "Gamma": gamma,
    "InverseGamma": inverse_gamma,
    "IsotropicNormalGamma": isotropic_normal_gamma,
    "Normal": normal,
    "NormalGamma": normal_gamma,
    "NormalWishart": normal_wishart,
    "Wishart": wishart,
}
# Parameters that grow with the number of observations.
COUNTED = {"a", "b", "concentration", "shape", "rate", "scale", "kappa", "scale_inv", "dof"}


def local_natural(family, true, rng, counts, noise):
    """Natural parameters of a silo's components with so many observations each.

    ``noise`` is the share of a parameter by which a silo differs; of a location, in its units.
    """
    found = {}
    for name, values in true.items():
        if name == "mean":
            found[name] = values + noise * rng.normal(size=values.shape)
        elif name in ("scale_inv", "covariance"):
            found[name] = values * positive(rng, (len(values), 1, 1), noise)
        elif name in ("kappa", "dof"):
            found[name] = values + family.dim
        else:
            found[name] = values * positive(rng, values.shape, noise)
        if name in COUNTED:
            found[name] = found[name] * counts.reshape(-1, *[1] * (values.ndim - 1))
    return rounded(family.natural(**found))


class Truth:
    """Global components of a family, products included, of which silos hold noisy copies."""

    def __init__(self, family, rng, n):
        self.family, self.factors = family, {}
        if isinstance(family, kf.families.Product):
            self.factors = {name: Truth(factor, rng, n) for name, factor in family.factors}
        else:
            self.params = COMPONENTS[type(family).__name__](rng, n, family.dim)

    def copy(self, held, rng, counts, noise):
        """Natural parameters of a silo that holds some of them."""
        if self.factors:
            parts = {k: part.copy(held, rng, counts, noise) for k, part in self.factors.items()}
            return self.family.natural(**parts)
        own = {name: values[held] for name, values in self.params.items()}
        return local_natural(self.family, own, rng, counts, noise)


def family_silos(family, n_silos=4, n_true=5, seed=0, known=True, size=None, noise=0.03):
    """Posteriors of some of ``n_true`` components per silo; ``size`` fixes how many.

    ``known``: with the counts of observations.
    """
    rng = np.random.default_rng(seed)
    truth = Truth(family, rng, n_true)
    held = [rng.permutation(n_true)[: size or rng.integers(2, n_true + 1)] for _ in range(n_silos)]
    return holding(truth, held, rng, noise, known)


def holding(truth, held, rng, noise, known=True):
    """Posteriors of the silos that hold the given components."""
    silos = []
    for j, own in enumerate(held):
        counts = np.round(rng.uniform(40, 200, size=len(own)))
        natural = truth.copy(own, rng, counts, noise)
        silos.append(
            kf.Posterior(truth.family, natural, name=f"silo-{j}", counts=counts if known else None)
        )
    return silos


def wishart_silos(n_silos=6, n_true=12, seed=1, noise=0.3, **settings):
    """Silos that vary so much that each setting of `fuse` gives another result."""
    return family_silos(
        kf.families.NormalWishart(2), n_silos, n_true, seed=seed, noise=noise, **settings
    )


def with_prior(silos, natural):
    """The same silos with one prior, which pooling by products needs."""
    return [replace(s, natural=s.natural + natural, prior=natural) for s in silos]


def prior_silos(seed=6, strength=1.0):
    """The prior is worth ``strength`` observations, around zero."""
    silos = wishart_silos(seed=seed)
    family = silos[0].family
    natural = family.natural(np.zeros((1, 2)), [strength], 3.0 * np.eye(2)[None], [2.0 + strength])
    return with_prior(silos, natural[0])


def foreign_priors(seed=6):
    """Priors that are not those of the posteriors: a product would leave the family."""
    silos = wishart_silos(seed=seed)
    family = silos[0].family
    prior = family.natural(np.full((1, 2), 3.0), [60.0], np.eye(2)[None], [60.0])[0]
    return [replace(s, prior=prior) for s in silos]


def hostile_silos(seed=7):
    """Six silos with the same components; one is half a deviation off and over-confident."""
    silos = wishart_silos(n_silos=6, n_true=5, seed=seed, noise=0.1, size=5)
    family, last = silos[0].family, silos[-1]
    params = last.params()
    far = {**params, "mean": params["mean"] + 0.5, "kappa": 50 * params["kappa"]}
    natural = rounded(family.natural(**far))
    return [*silos[:-1], kf.Posterior(family, natural, name=last.name)]


def single_components(seed=8):
    """One component per silo: no silo shows how far apart different components lie."""
    family = kf.families.NormalWishart(2)
    rng = np.random.default_rng(seed)
    centres = np.array([[0.0, 0.0], [30.0, 0.0]])
    return [
        kf.Posterior(
            family,
            family.natural(
                centres[[j % 2]] + 0.1 * rng.normal(size=(1, 2)),
                [60.0], 60.0 * np.eye(2)[None], [62.0],
            ),
            name=f"silo-{j}",
        )
        for j in range(6)
    ]  # fmt: skip


def no_sharing(seed=9):
    """Three silos with four components each, none of them in common."""
    silos = wishart_silos(n_silos=1, seed=seed, size=12)
    natural = silos[0].natural
    return [
        kf.Posterior(silos[0].family, natural[4 * j : 4 * j + 4], name=f"silo-{j}")
        for j in range(3)
    ]


def many_silos(noise=0.03, seed=10):
    """61 silos of 20 rates each: 1,220 components, more than are compared in all pairs."""
    return family_silos(
        kf.families.Gamma(3), n_silos=61, n_true=40, seed=seed, size=20, noise=noise
    )


def rare_components(seed=19):
    """66 silos of 20 rates: 14 of 40 that are common, and 6 that one other silo has as well."""
    rng = np.random.default_rng(seed)
    truth = Truth(kf.families.Gamma(4), rng, 40 + 3 * 66)
    rare = np.repeat(40 + np.arange(3 * 66), 2)
    rare = np.concatenate([rng.permutation(part) for part in np.split(rare, 3)]).reshape(66, 6)
    held = [np.concatenate([rng.permutation(40)[:14], np.unique(own)]) for own in rare]
    return holding(truth, held, rng, noise=0.03)


def never_in_one_silo(seed=20):
    """Two components of which no silo has both, and three that all silos have."""
    rng = np.random.default_rng(seed)
    family = kf.families.DiagonalNormal(20)
    centres = rng.normal(size=(5, 20))
    silos = []
    for j in range(12):
        mean = centres[[0, 1, 2, 3 + j % 2]] + 0.45 * rng.normal(size=(4, 20))
        natural = rounded(family.natural(mean, np.full(mean.shape, 0.05)))
        silos.append(kf.Posterior(family, natural, name=f"silo-{j}"))
    return silos


def large_files(seed=21):
    """Topics of 20,000 words: files so large that a batch holds two of the four."""
    made = topic_counts(4, 20_000, 12, seed, size=10, concentration=3000.0)
    return [kf.extract(lda(counts), name=f"silo-{j}") for j, counts in enumerate(made)]


def program_sites(seed=22):
    """Components of a probabilistic program, with one site outside their plate."""
    rng = np.random.default_rng(seed)
    site = {"name": "slope", "shape": [3], "support": {"kind": "real"}}
    inside = {**site, "name": "own", "axis": -2}
    silos = []
    for silo in family_silos(kf.families.DiagonalNormal(3), seed=seed, noise=0.1):
        arrays = {"slope.mean": rng.normal(size=3), "slope.variance": rng.uniform(0.1, 1.0, size=3)}
        around = structure("sites", arrays, {"sites": [inside], "shared": [site]})
        silos.append(replace(silo, structure=around))
    return silos


# Hidden Markov models ----------------------------------------------------------------------


def structure(kind, arrays, info):
    """What surrounds the components, of whichever class it is."""
    zeros = {name: (np.zeros(s), np.ones(s)) for name, s in {"a": (2, 2), "b": (1, 3)}.items()}
    return type(kf.extract(zeros, name="any").structure)(kind, arrays, info)


def chains(emissions, prior, info, seed):
    """HMMs around the given emissions, with expected numbers of starts and of steps."""
    rng = np.random.default_rng(seed)
    silos = []
    for silo in emissions:
        n = silo.n_components
        arrays = {
            "start": rng.uniform(0.0, 3.0, size=n),
            "transition": rng.uniform(1.0, 20.0, size=(n, n)) + 60.0 * np.eye(n),
            "start_prior": np.full(n, 1.0 / n),
            "transition_prior": np.full((n, n), 0.5) + 5.0 * np.eye(n),
        }
        counts = arrays["start"] + arrays["transition"].sum(axis=0)
        around = structure("hmm", arrays, info)
        silos.append(replace(silo, prior=prior, counts=counts, structure=around))
    return silos


def gaussian_chains(seed=11):
    emissions = prior_silos(seed)
    info = {"covariance_type": "full", "frame_weight": 0.5}
    return chains(emissions, emissions[0].prior, info, seed)


def categorical_chains(seed=12):
    family = kf.families.Dirichlet(6)
    emissions = with_prior(family_silos(family, seed=seed), np.full(6, 0.5))
    return chains(emissions, emissions[0].prior, {}, seed)


def sticky_hmm(seed=13):
    """Two `StickyHDPHMM`s, trained by klfusion itself on 120 frames each."""
    rng = np.random.default_rng(seed)
    places = np.array([[-6.0, 0.0], [6.0, 0.0], [0.0, 8.0]])
    models = {}
    for name, states in {"a": [0, 1], "b": [1, 2]}.items():
        frames = places[np.repeat([states[0], states[1]] * 2, 30)] + rng.normal(size=(120, 2))
        learner = kf.learners.StickyHDPHMM(n_components=4, n_init=1, random_state=0, progress=False)
        models[name] = learner.fit(frames, lengths=[60, 60])
    return models


def hmmlearn_chains(covariance_type, seed=14):
    """`VariationalGaussianHMM`s with the attributes that their `fit` would set."""
    from hmmlearn.vhmm import VariationalGaussianHMM

    rng = np.random.default_rng(seed)
    models = {}
    for name, (x, cluster) in zip("abc", observations(seed=seed), strict=True):
        own = bayesian_mixture(x, compact(cluster), covariance_type)
        n = own.n_components
        model = VariationalGaussianHMM(n, covariance_type=covariance_type)
        model.n_features = x.shape[1]
        dof, tied = own.degrees_of_freedom_, covariance_type == "tied"
        per_row = dof if tied else dof.reshape(-1, *[1] * (own.covariances_.ndim - 1))
        scale = own.covariances_ * per_row
        if tied:  # hmmlearn has all observations in it, scikit-learn those of one component
            scale = own.covariance_prior_ + n * (scale - own.covariance_prior_)
            dof = own.degrees_of_freedom_prior_ + n * (dof - own.degrees_of_freedom_prior_)
        model.means_posterior_, model.beta_posterior_ = own.means_, own.mean_precision_
        model.dof_posterior_, model.scale_posterior_ = dof, scale
        model.means_prior_, model.beta_prior_ = np.tile(own.mean_prior_, (n, 1)), np.ones(n)
        copies = 1 if tied else n
        model.dof_prior_ = np.full(copies, own.degrees_of_freedom_prior_).squeeze()
        model.scale_prior_ = np.stack([own.covariance_prior_] * copies).squeeze()
        model.startprob_prior_, model.transmat_prior_ = np.full(n, 1.0 / n), np.full((n, n), 1 / n)
        model.startprob_posterior_ = model.startprob_prior_ + rng.uniform(0.0, 4.0, size=n)
        model.transmat_posterior_ = model.transmat_prior_ + rng.uniform(1.0, 40.0, size=(n, n))
        model.startprob_ = model.startprob_posterior_ / model.startprob_posterior_.sum()
        model.transmat_ = model.transmat_posterior_ / model.transmat_posterior_.sum(
            axis=1, keepdims=True
        )
        models[name] = model
    return models


# Topics ------------------------------------------------------------------------------------


def topic_counts(
    n_silos, n_words, n_true, seed, size, concentration=300.0, sparsity=0.1, words=(500, 4000)
):
    """Expected words (topics, words) of each silo.

    A smaller ``concentration`` lets silos vary more, a larger ``sparsity`` makes topics more alike.
    """
    rng = np.random.default_rng(seed)
    topics = rng.dirichlet(np.full(n_words, sparsity), size=n_true)
    for _ in range(n_silos):
        held = rng.permutation(n_true)[:size]
        own = np.stack([rng.dirichlet(concentration * topics[k] + 1e-2) for k in held])
        yield rounded(rng.uniform(*words, size=(size, 1)) * own)


def lda(counts):
    """A `LatentDirichletAllocation` with the given expected words."""
    model = LatentDirichletAllocation(len(counts))
    model.components_ = 0.1 + counts
    model.topic_word_prior_, model.doc_topic_prior_ = 0.1, 1.0 / len(counts)
    model.exp_dirichlet_component_ = counts
    model.n_batch_iter_, model.n_features_in_ = 1, counts.shape[1]
    return model


def topic_silos(n_silos=4, n_words=80, n_true=8, seed=15, size=5):
    made = topic_counts(n_silos, n_words, n_true, seed, size)
    return {f"silo-{j}": lda(counts) for j, counts in enumerate(made)}


def vague_topics(seed=2):
    """Few words per topic and much variation: many merges are doubtful."""
    made = topic_counts(4, 80, 8, seed, 5, concentration=10.0, sparsity=0.5, words=(100, 400))
    return {f"silo-{j}": lda(counts) for j, counts in enumerate(made)}


def own_vocabularies(seed=16):
    """Each silo lacks some of the words, and has the others in an order of its own."""
    rng = np.random.default_rng(seed)
    words = np.array([f"word-{k:02d}" for k in range(80)])
    silos = []
    for j, counts in enumerate(topic_counts(4, 80, 8, seed, 5)):
        held = rng.permutation(80)[:60]
        silos.append(
            kf.extract(lda(counts[:, held]), name=f"silo-{j}", vocabulary=words[held].tolist())
        )
    return silos


def gensim_topics(seed=17):
    """`LdaModel`s with the statistics that training would give them."""
    from gensim.corpora import Dictionary
    from gensim.models import LdaModel

    models = {}
    for j, counts in enumerate(topic_counts(3, 60, 6, seed, 4)):
        words = Dictionary([[f"word-{k:02d}" for k in range(60)]])
        model = LdaModel(
            id2word=words, num_topics=4, alpha=np.full(4, 0.25), eta=np.full(60, 0.1),
            random_state=0, dtype=np.float64,
        )  # fmt: skip
        model.state.sstats, model.state.numdocs, model.num_updates = counts, 100, 100
        models[f"silo-{j}"] = model
    return models


# Networks ----------------------------------------------------------------------------------


def networks(hidden, n_silos=3, seed=18, n_in=5, n_out=3, noise=0.15, counted=True):
    """Means and variances of weights; silos hold some of the units of one network.

    ``counted``: with the number of observations of each class.
    """
    rng = np.random.default_rng(seed)
    sizes = [n_in, *(2 * n for n in hidden), n_out]
    true = [rng.normal(size=(b, a + 1)) for a, b in pairwise(sizes)]
    silos = []
    for j in range(n_silos):
        before, layers = np.arange(n_in), {}
        for i, weights in enumerate(true):
            last = i == len(true) - 1
            rows = np.arange(n_out) if last else np.sort(rng.permutation(len(weights))[: hidden[i]])
            mean = weights[np.ix_(rows, [*before, weights.shape[1] - 1])]
            mean = mean + noise * rng.normal(size=mean.shape)
            variance = 0.01 * positive(rng, mean.shape, 0.5)
            layers[f"fc{i + 1}"] = rounded(mean), rounded(variance)
            before = rows
        counts = rng.integers(50, 200, size=n_out) if counted else None
        silos.append(kf.extract(layers, name=f"silo-{j}", class_counts=counts))
    return silos


def idle_units(hidden, seed=23):
    """Networks in which a third of the units of each hidden layer carries no signal on."""
    rng = np.random.default_rng(seed)
    silos = []
    for silo in networks(hidden, n_silos=3, seed=seed):
        arrays = dict(silo.structure.arrays)
        for layer in range(1, len(hidden) + 1):
            mean, variance = arrays[f"mean.{layer}"].copy(), arrays[f"variance.{layer}"]
            idle = rng.permutation(mean.shape[1] - 1)[: (mean.shape[1] - 1) // 3]
            mean[:, idle] = rounded(0.05 * rng.normal(size=(len(mean), len(idle))))
            arrays |= {f"mean.{layer}": mean, f"variance.{layer}": variance}
        silos.append(replace(silo, structure=replace(silo.structure, arrays=arrays)))
    return silos


def own_classes():
    """Networks of different classes."""
    classes = [["cat", "dog", "owl"], ["dog", "owl", "pig"], ["cat", "pig", "rat"]]
    silos = []
    for silo, own in zip(networks((6,)), classes, strict=True):
        around = replace(silo.structure, info={**silo.structure.info, "classes": own})
        silos.append(replace(silo, structure=around))
    return silos
