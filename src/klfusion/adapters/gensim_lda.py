"""gensim's `LdaModel` and its subclass `LdaMulticore`."""

from typing import Any

import numpy as np
from gensim.corpora import Dictionary
from gensim.models import LdaModel
from gensim.utils import FakeDict

from klfusion._utils.arrays import IntArray
from klfusion.adapters._library import origin, structure_and_prior
from klfusion.errors import KLFusionError
from klfusion.families import Dirichlet
from klfusion.posteriors.posterior import Posterior
from klfusion.posteriors.structure.kinds import TOPICS, VOCABULARY
from klfusion.posteriors.structure.words import checked_words

# Settings of inference and further training.
_SETTINGS = (
    "chunksize", "passes", "update_every", "decay", "offset", "eval_every", "iterations",
    "gamma_threshold", "minimum_probability", "minimum_phi_value", "per_word_topics",
)  # fmt: skip


def extract(model: Any, name: str) -> Posterior:
    """The variational posterior of the topics, the priors, and the words of ``id2word``.

    With ``eta="auto"`` the prior is the one in the topics. gensim updates its own estimate, but
    does not add it to the topics.
    """
    if model.num_updates == 0:
        raise KLFusionError(f"expected a trained {type(model).__name__}; call update first")
    state = model.state
    if state.eta.ndim != 1:
        expected = "expected eta to be a number or one per word, the same for all topics"
        raise KLFusionError(f"{expected}, got shape {state.eta.shape}")
    words, ids = _words(model, f"silo {name!r}")
    # `get_lambda()` rounds the sum to single precision, which loses digits of the counts.
    prior = state.eta[ids].astype(np.float64)
    counted = state.sstats[:, ids].astype(np.float64)
    mass = np.maximum(counted.sum(axis=1), 0.0)
    info = {
        VOCABULARY: words,
        "dtype": np.dtype(model.dtype).name,
        "n_documents": int(state.numdocs),  # weight of this posterior in further training
        "settings": {key: getattr(model, key, None) for key in _SETTINGS},
    }
    arrays = {"topic_mass": mass, "doc_topic_prior": model.alpha}
    source = origin("gensim", "LdaModel", TOPICS, arrays, info)
    return Posterior(Dirichlet(len(ids)), prior + counted, name, prior, mass, *source)


def _words(model: Any, where: str) -> tuple[list[str] | None, IntArray]:
    """The words, and their columns: ids may have gaps."""
    if isinstance(model.id2word, FakeDict):  # the replacement for a missing dictionary
        return None, np.arange(model.num_terms)
    ids = np.array(sorted(model.id2word.keys()), dtype=np.intp)
    return checked_words((model.id2word[int(i)] for i in ids), len(ids), where), ids


def rebuild(posterior: Posterior) -> Any:
    """A trained `LdaModel`; the ids of its dictionary are the columns of the posterior."""
    structure, prior = structure_and_prior(posterior, "topics with their priors", "doc_topic_prior")
    info = structure.info
    id2word: Any = FakeDict(len(prior))
    if info[VOCABULARY] is not None:
        id2word = Dictionary()
        id2word.token2id = {word: i for i, word in enumerate(info[VOCABULARY])}
    dtype = np.dtype(info["dtype"]).type
    model = LdaModel(
        id2word=id2word,
        num_topics=posterior.n_components,
        alpha=structure.arrays["doc_topic_prior"].astype(dtype),
        eta=prior.astype(dtype),
        random_state=0,
        dtype=dtype,
        **info["settings"],
    )
    model.state.sstats = (posterior.natural - prior).astype(dtype)
    model.sync_state()
    model.state.numdocs = model.num_updates = max(info["n_documents"], 1)
    return model
