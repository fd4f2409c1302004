"""scikit-learn's `LatentDirichletAllocation`."""

from collections.abc import Iterable
from typing import Any

import numpy as np
from scipy.special import digamma
from sklearn.decomposition import LatentDirichletAllocation

from klfusion.adapters._library import check_fitted, origin, structure_and_prior
from klfusion.errors import KLFusionError
from klfusion.families import Dirichlet
from klfusion.posteriors.posterior import Posterior
from klfusion.posteriors.structure.kinds import TOPICS, VOCABULARY
from klfusion.posteriors.structure.words import checked_words

_MIN_WORDS = 1e-6  # expected words below which rounding explains the whole mass
# Settings of `transform` and further training.
_SETTINGS = (
    "learning_method", "learning_decay", "learning_offset", "max_iter", "batch_size",
    "evaluate_every", "total_samples", "perp_tol", "mean_change_tol", "max_doc_update_iter",
)  # fmt: skip


def extract(model: Any, name: str, *, vocabulary: Iterable[str] | None = None) -> Posterior:
    """The variational posterior of the topics, and the priors.

    ``vocabulary`` has the word of each column, ``vectorizer.get_feature_names_out()``. With it,
    silos may have different words. Default: the columns of the data frame, if there was one.
    """
    check_fitted(model)
    if np.ndim(model.components_) != 2:
        shape = np.shape(model.components_)
        raise KLFusionError(f"expected components_ of shape (topics, words), got {shape}")
    n_topics, n_words = model.components_.shape
    columns = getattr(model, "feature_names_in_", None)
    words = columns if vocabulary is None else vocabulary
    family = Dirichlet(n_words)
    natural = family.natural(model.components_)
    prior = np.full(n_words, float(model.topic_word_prior_))
    mass = np.maximum(natural.sum(axis=1) - prior.sum(), 0.0)
    if float(mass.sum()) < _MIN_WORDS:
        expected = "expected a model fitted to documents with words"
        raise KLFusionError(f"{expected}, got one without: leave it out")
    info = {
        VOCABULARY: None if words is None else checked_words(words, n_words, f"silo {name!r}"),
        "data_frame": columns is not None,
        "dtype": model.components_.dtype.name,
        "n_batch_iter": int(model.n_batch_iter_),
        "settings": {key: getattr(model, key) for key in _SETTINGS},
    }
    topic_prior = np.full(n_topics, float(model.doc_topic_prior_))
    arrays = {"topic_mass": mass, "doc_topic_prior": topic_prior}
    source = origin("sklearn", "LatentDirichletAllocation", TOPICS, arrays, info)
    return Posterior(family, natural, name, prior, mass, *source)


def rebuild(posterior: Posterior) -> Any:
    """A fitted `LatentDirichletAllocation` with this posterior.

    scikit-learn has one number per prior: the average of its entries.
    """
    structure, prior = structure_and_prior(posterior, "topics with their priors", "doc_topic_prior")
    info = structure.info
    model = LatentDirichletAllocation(
        n_components=posterior.n_components,
        doc_topic_prior=float(structure.arrays["doc_topic_prior"].mean()),
        topic_word_prior=float(prior.mean()),
        **{key: info["settings"][key] for key in _SETTINGS},
    )
    model.doc_topic_prior_, model.topic_word_prior_ = model.doc_topic_prior, model.topic_word_prior
    model.components_ = posterior.natural.astype(info["dtype"])
    expected_log = digamma(model.components_) - digamma(model.components_.sum(axis=1))[:, None]
    model.exp_dirichlet_component_ = np.exp(expected_log)
    model.n_features_in_ = posterior.family.size
    if info["data_frame"]:
        model.feature_names_in_ = np.array(info[VOCABULARY], dtype=object)
    model.random_state_ = np.random.RandomState(0)
    model.n_batch_iter_, model.n_iter_, model.bound_ = info["n_batch_iter"], 0, np.nan
    return model
