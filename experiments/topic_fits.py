"""Local and pooled topic models for the topics experiment; `joblib` caches `fit`."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.decomposition import LatentDirichletAllocation
from threadpoolctl import threadpool_limits

ALPHA, ETA = 0.1, 0.1  # Dirichlet priors of topics per document and words per topic
N_ITER = 20  # passes over the documents


def fit(counts: Any, words: list[str], n_topics: int, seed: int, n_iter: int, library: str) -> Any:
    """Variational inference on word counts (n, V) by scikit-learn or gensim."""
    with threadpool_limits(1):
        if library == "gensim":
            return _gensim(counts, words, n_topics, seed, n_iter)
        return LatentDirichletAllocation(
            n_topics,
            doc_topic_prior=ALPHA,
            topic_word_prior=ETA,
            max_iter=n_iter,
            random_state=seed,
        ).fit(counts)


def _gensim(counts: Any, words: list[str], n_topics: int, seed: int, n_iter: int) -> Any:
    from gensim.matutils import Sparse2Corpus  # noqa: PLC0415 (an extra)
    from gensim.models import LdaModel  # noqa: PLC0415

    return LdaModel(
        Sparse2Corpus(counts, documents_columns=False),
        num_topics=n_topics, id2word=dict(enumerate(words)),
        alpha=np.full(n_topics, ALPHA), eta=ETA, random_state=seed,
        update_every=0, passes=n_iter, eval_every=None, dtype=np.float64,
    )  # fmt: skip
