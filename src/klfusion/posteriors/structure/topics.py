"""Topic models: the word of each column, and how often documents use each topic."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence, Set
from typing import Any

import numpy as np

from klfusion._utils.arrays import FloatArray, IntArray
from klfusion.errors import KLFusionError
from klfusion.posteriors.structure.structure import Structure, scatter

KIND = "topics"
VOCABULARY = "vocabulary"  # key in `info`: the words of the columns, or None


def fuse(silos: Sequence[Structure], labels: Sequence[IntArray], n_components: int) -> Structure:
    """Add ``topic_mass`` (L,); pool ``doc_topic_prior`` (L,).

    ``topic_mass`` is the expected number of words per topic, ``doc_topic_prior`` the Dirichlet
    prior of a document's topics. Without these arrays, only the vocabulary is kept. Vocabularies
    are equal, see `klfusion.posteriors.vocabularies`.
    """
    if not all({"topic_mass", "doc_topic_prior"} <= s.arrays.keys() for s in silos):
        return Structure(KIND, {}, silos[0].info)
    masses = [s.arrays["topic_mass"] for s in silos]
    mass = scatter(masses, labels, n_components)
    prior = _doc_topic_prior(
        [s.arrays["doc_topic_prior"] for s in silos], masses, labels, len(mass)
    )
    return Structure(KIND, {"topic_mass": mass, "doc_topic_prior": prior}, silos[0].info)


def _doc_topic_prior(
    priors: Sequence[FloatArray],
    masses: Sequence[FloatArray],
    labels: Sequence[IntArray],
    n_components: int,
) -> FloatArray:
    """A Dirichlet prior (G,) whose total is the average total of the silos' priors.

    A normalised prior is the expected share of each topic. Shares are averaged over silos, each
    weighted by its number of words. So copies of one model give its own prior.
    """
    words = [max(mass.sum(), 1.0) for mass in masses]  # a silo without words keeps its topics
    shares = [n * prior / prior.sum() for n, prior in zip(words, priors, strict=True)]
    pooled = scatter(shares, labels, n_components)
    total = np.mean([prior.sum() for prior in priors])
    return np.asarray(total * pooled / pooled.sum())


def checked_words(words: Any, n_words: int, where: str) -> list[str]:
    """The words as a list of Python strings; an error unless they fit the columns."""
    # A dict, such as a vectorizer's `vocabulary_`, is not in the order of the columns.
    if not isinstance(words, Iterable) or isinstance(words, str | Mapping | Set):
        raise KLFusionError(
            f"{where}: expected a vocabulary of strings in the order of the columns, such as "
            f"vectorizer.get_feature_names_out(), got {type(words).__name__}"
        )
    found = list(words)
    for position, word in enumerate(found):
        if not isinstance(word, str):
            raise KLFusionError(
                f"{where}: expected a vocabulary of strings, got {word!r} at position {position}"
            )
    if len(found) != n_words:
        raise KLFusionError(
            f"{where}: expected a vocabulary of {n_words} words, one per column of the topics, "
            f"got {len(found)}"
        )
    if len(set(found)) < len(found):
        word, times = Counter(found).most_common(1)[0]
        raise KLFusionError(
            f"{where}: expected a vocabulary of unique words, got {word!r} {times} times"
        )
    return [str(word) for word in found]  # numpy strings become Python strings
