"""scikit-learn's `LatentDirichletAllocation`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import sklearn
from scipy.special import digamma
from sklearn.decomposition import LatentDirichletAllocation
from sklearn.utils.validation import check_is_fitted

from klfusion._utils.provenance import provenance
from klfusion.errors import KLFusionError
from klfusion.families import Dirichlet
from klfusion.posteriors.posterior import Posterior
from klfusion.posteriors.structure import Structure
from klfusion.posteriors.structure.topics import KIND, VOCABULARY, checked_words

_NOTHING = 1e-6  # words that rounding makes of none

# What `transform` and further training depend on, besides the posterior.
_SETTINGS = (
    "learning_method", "learning_decay", "learning_offset", "max_iter", "batch_size",
    "evaluate_every", "total_samples", "perp_tol", "mean_change_tol", "max_doc_update_iter",
)  # fmt: skip


def extract(model: Any, name: str, *, vocabulary: Iterable[str] | None = None) -> Posterior:
    """The variational posterior of the topics, and the priors.

    Parameters
    ----------
    model : LatentDirichletAllocation
    name : str
        The silo's name.
    vocabulary : iterable of str, optional
        The word of each column, ``vectorizer.get_feature_names_out()``. With it, silos need not
        have the same words. Default: the columns of the data frame the model was fitted to, if
        it was one.
    """
    where = f"silo {name!r}"
    try:
        check_is_fitted(model)
    except sklearn.exceptions.NotFittedError as error:
        raise KLFusionError(
            f"{where}: expected a fitted LatentDirichletAllocation; call fit first"
        ) from error
    if np.ndim(model.components_) != 2:
        raise KLFusionError(
            f"{where}: expected components_ of shape (topics, words), "
            f"got {np.shape(model.components_)}"
        )
    n_topics, n_words = model.components_.shape
    columns = getattr(model, "feature_names_in_", None)
    words = columns if vocabulary is None else vocabulary
    family = Dirichlet(n_words)
    natural = family.natural(model.components_)
    prior = np.full(n_words, float(model.topic_word_prior_))
    mass = np.maximum(natural.sum(axis=1) - prior.sum(), 0.0)
    if float(mass.sum()) < _NOTHING:
        raise KLFusionError(
            f"{where}: expected a model fitted to documents with words, got one that saw none: "
            "leave it out"
        )
    return Posterior(
        family=family,
        natural=natural,
        name=name,
        prior=prior,
        counts=mass,
        structure=Structure(
            kind=KIND,
            arrays={
                "topic_mass": mass,
                "doc_topic_prior": np.full(n_topics, float(model.doc_topic_prior_)),
            },
            info={
                "package": "sklearn",
                "class": "LatentDirichletAllocation",
                VOCABULARY: None if words is None else checked_words(words, n_words, where),
                "data_frame": columns is not None,
                "dtype": model.components_.dtype.name,
                "n_batch_iter": int(model.n_batch_iter_),
                "settings": {key: getattr(model, key) for key in _SETTINGS},
            },
        ),
        provenance=provenance(sklearn=sklearn.__version__),
    )


def rebuild(posterior: Posterior) -> Any:
    """A fitted `LatentDirichletAllocation`, as if `fit` had found this posterior.

    scikit-learn has one number for each prior, so it gets their averages.
    """
    structure, prior = posterior.structure, posterior.prior
    if structure is None or prior is None or "doc_topic_prior" not in structure.arrays:
        raise KLFusionError(f"{posterior.name!r}: expected topics with their priors")
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
