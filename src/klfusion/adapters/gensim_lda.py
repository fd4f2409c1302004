"""gensim's `LdaModel`, and `LdaMulticore`, which is one."""

from __future__ import annotations

from typing import Any

import gensim
import numpy as np
from gensim.corpora import Dictionary
from gensim.models import LdaModel
from gensim.utils import FakeDict

from klfusion._utils.arrays import IntArray
from klfusion._utils.provenance import provenance
from klfusion.errors import KLFusionError
from klfusion.families import Dirichlet
from klfusion.posteriors.posterior import Posterior
from klfusion.posteriors.structure import Structure
from klfusion.posteriors.structure.topics import KIND, VOCABULARY, checked_words

# What inference and further training depend on, besides the posterior.
_SETTINGS = (
    "chunksize", "passes", "update_every", "decay", "offset", "eval_every", "iterations",
    "gamma_threshold", "minimum_probability", "minimum_phi_value", "per_word_topics",
)  # fmt: skip


def extract(model: Any, name: str) -> Posterior:
    """The variational posterior of the topics, the priors, and the words of ``id2word``.

    With ``eta="auto"``, the prior is the one the topics contain: gensim goes on to learn another
    but never puts it into them.
    """
    where = f"silo {name!r}"
    if model.num_updates == 0:
        raise KLFusionError(
            f"{where}: expected a trained {type(model).__name__}; call update first"
        )
    state = model.state
    if state.eta.ndim != 1:
        raise KLFusionError(
            f"{where}: expected eta to be a number or one number a word, the same for all topics, "
            f"got shape {state.eta.shape}"
        )
    words, ids = _words(model, where)
    # Not `get_lambda()`: its sum in single precision could not be taken apart again.
    prior = state.eta[ids].astype(np.float64)
    counted = state.sstats[:, ids].astype(np.float64)
    mass = np.maximum(counted.sum(axis=1), 0.0)
    return Posterior(
        family=Dirichlet(len(ids)),
        natural=prior + counted,
        name=name,
        prior=prior,
        counts=mass,
        structure=Structure(
            kind=KIND,
            arrays={"topic_mass": mass, "doc_topic_prior": model.alpha},
            info={
                "package": "gensim",
                "class": "LdaModel",
                VOCABULARY: words,
                "dtype": np.dtype(model.dtype).name,
                "n_documents": int(state.numdocs),  # what further training weighs itself against
                "settings": {key: getattr(model, key, None) for key in _SETTINGS},
            },
        ),
        provenance=provenance(gensim=gensim.__version__),
    )


def _words(model: Any, where: str) -> tuple[list[str] | None, IntArray]:
    """The words, and the columns that have one: ids may have gaps."""
    if isinstance(model.id2word, FakeDict):  # what gensim makes up where nobody gave the words
        return None, np.arange(model.num_terms)
    ids = np.array(sorted(model.id2word.keys()), dtype=np.intp)
    return checked_words((model.id2word[int(i)] for i in ids), len(ids), where), ids


def rebuild(posterior: Posterior) -> Any:
    """A trained `LdaModel`; the ids of its dictionary are the columns of the posterior."""
    structure, prior = posterior.structure, posterior.prior
    if structure is None or prior is None or "doc_topic_prior" not in structure.arrays:
        raise KLFusionError(f"{posterior.name!r}: expected topics with their priors")
    info = structure.info
    words = info[VOCABULARY]
    id2word: Any = FakeDict(len(prior))
    if words is not None:
        id2word = Dictionary()
        id2word.token2id = {word: i for i, word in enumerate(words)}
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
