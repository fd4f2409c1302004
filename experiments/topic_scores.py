"""Quality of topics: held-out words, coherence, agreement with newsgroups."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array, csr_array
from scipy.special import digamma
from sklearn.decomposition import LatentDirichletAllocation
from sklearn.metrics import adjusted_rand_score

import klfusion as kf
from experiments.newsgroups import Corpus, IntArray, Split
from experiments.topic_fits import ETA

HELD_OUT = 0.1  # share of the words of a test document
N_TOP = 10  # words per topic in the coherence

FloatArray = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Topics:
    """Concentrations (G, V) of topics, and the prior of a document's topics."""

    concentration: FloatArray
    alpha: float

    @classmethod
    def of(cls, posterior: kf.Posterior, corpus: Corpus) -> Topics:
        """Topics of a posterior; words outside its vocabulary have the prior."""
        column = {word: k for k, word in enumerate(corpus.words)}
        columns = [column[word] for word in kf.vocabulary.words(posterior)]
        concentration = np.full((posterior.n_components, len(column)), ETA)
        concentration[:, columns] = posterior.natural
        assert posterior.structure is not None  # topics have one
        return cls(concentration, float(posterior.structure.arrays["doc_topic_prior"].mean()))

    @property
    def probability(self) -> FloatArray:
        """Expected probability of each word in each topic, (G, V)."""
        return np.asarray(self.concentration / self.concentration.sum(axis=1, keepdims=True))

    def shares(self, counts: Any) -> FloatArray:
        """Expected topic shares (n, G) of documents, by scikit-learn's inference."""
        model = LatentDirichletAllocation(len(self.concentration), doc_topic_prior=self.alpha)
        model.doc_topic_prior_, model.components_ = self.alpha, self.concentration
        model.n_features_in_ = self.concentration.shape[1]
        total = self.concentration.sum(axis=1, keepdims=True)
        model.exp_dirichlet_component_ = np.exp(digamma(self.concentration) - digamma(total))
        model.random_state_ = np.random.RandomState(0)
        return np.asarray(model.transform(counts))


@dataclass(frozen=True, eq=False)
class Test:
    """Test documents: given words, hidden words, newsgroups."""

    given: Any
    hidden: Any
    group: IntArray

    @classmethod
    def of(cls, split: Split, seed: int) -> Test:
        """Hide a tenth of the words of each test document, at least one."""
        rng = np.random.default_rng([seed, 2])
        rows = np.flatnonzero(split.test)
        counts = csr_array(split.corpus.counts[rows])
        hidden = counts.copy()
        for low, high in zip(counts.indptr[:-1], counts.indptr[1:], strict=True):
            own = counts.data[low:high].astype(np.intp)
            n_hidden = max(1, round(HELD_OUT * own.sum()))
            hidden.data[low:high] = rng.multivariate_hypergeometric(own, n_hidden)
        given = counts - hidden
        given.eliminate_zeros()
        hidden.eliminate_zeros()
        return cls(csr_array(given), hidden, split.corpus.group[rows])

    def log_likelihood(self, topics: Topics) -> float:
        """Log-likelihood of hidden words in nats per word (the paper's appendix B)."""
        shares, probability = topics.shares(self.given), topics.probability
        hidden = coo_array(self.hidden)
        predicted = np.einsum("ng,gn->n", shares[hidden.row], probability[:, hidden.col])
        return float(hidden.data @ np.log(predicted) / hidden.data.sum())

    def agreement(self, topics: Topics) -> float:
        """Adjusted Rand index of documents' dominant topics and newsgroups."""
        dominant = topics.shares(self.given + self.hidden).argmax(axis=1)
        return float(adjusted_rand_score(self.group, dominant))


def nearer(silos: dict[str, kf.Posterior], fusion: kf.Fusion, corpus: Corpus) -> float:
    """Probability that a merged pair is nearer than one of the same two silos that is not merged.

    The mean over pairs of silos of the rank statistic of Mann and Whitney, by the Hellinger
    distance of expected word probabilities. NaN where nothing is merged.
    """
    root = {name: np.sqrt(Topics.of(own, corpus).probability) for name, own in silos.items()}
    shares = []
    for a, b in combinations(silos, 2):
        affinity, one, two = root[a] @ root[b].T, fusion.labels[a], fusion.labels[b]
        merged = (one[:, None] == two) & (one[:, None] >= 0)
        kept = (one[:, None] >= 0) & (two >= 0)
        if merged.any():
            others = np.sort(affinity[kept & ~merged])
            shares.append(np.searchsorted(others, affinity[merged]).mean() / max(len(others), 1))
    return float(np.mean(shares)) if shares else float("nan")


def coherence(topics: Topics, counts: Any) -> float:
    """Mean over topics of the normalised pointwise mutual information of their top words."""
    present = csr_array(counts > 0).astype(np.float64)
    n = present.shape[0]
    top = np.argsort(-topics.concentration, axis=1, kind="stable")[:, :N_TOP]
    scores = []
    for words in top:
        columns = present[:, words].toarray()
        joint = columns.T @ columns / n
        single = np.diag(joint)
        i, j = np.triu_indices(len(words), k=1)
        both = joint[i, j]
        with np.errstate(divide="ignore", invalid="ignore"):
            npmi = np.log(both / (single[i] * single[j])) / -np.log(both)
        scores.append(np.where(both > 0, npmi, -1.0).mean())
    return float(np.mean(scores))
