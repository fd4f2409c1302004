"""Topics: which word each column stands for, and how often documents use each topic."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence, Set
from typing import Any

import numpy as np

from klfusion._utils.arrays import FloatArray, IntArray
from klfusion.errors import KLFusionError
from klfusion.posteriors.structure.structure import Structure, scatter

KIND = "topics"
VOCABULARY = "vocabulary"  # in `info`: the words of the columns, or None where nobody said


def fuse(silos: Sequence[Structure], labels: Sequence[IntArray], n_components: int) -> Structure:
    """Pool the mass of the topics; from it, the prior of the documents' topics.

    Parameters
    ----------
    silos : sequence of Structure
        With arrays ``topic_mass`` (L,), the expected number of words of each topic, and
        ``doc_topic_prior`` (L,), the Dirichlet prior of a document's topics; the vocabularies are
        equal (`klfusion.posteriors.vocabularies`). Without the arrays, only the words are carried
        over.
    labels : sequence of int arrays
        Global topic of each local one, -1 for none.
    n_components : int
        Number of global topics.
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
    """As strong as the silos' priors on average, (G,).

    A silo's prior says which share of its words a topic has; all silos' documents together have
    the average of the shares, each silo counted by its words. Copies of one model give its prior,
    and priors that favour no topic favour the topics that many silos have.
    """
    words = [max(mass.sum(), 1.0) for mass in masses]  # a silo without any still names its topics
    shares = [n * prior / prior.sum() for n, prior in zip(words, priors, strict=True)]
    pooled = scatter(shares, labels, n_components)
    strength = np.mean([prior.sum() for prior in priors])
    return np.asarray(strength * pooled / pooled.sum())


def checked_words(words: Any, n_words: int, where: str) -> list[str]:
    """The words as a list of plain strings, or an error that says what is wrong with them."""
    # A vectorizer's `vocabulary_` is a dict in another order than its columns.
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
            f"{where}: expected a vocabulary of {n_words} words, one for each column of the "
            f"topics, got {len(found)}"
        )
    if len(set(found)) < len(found):
        word, times = Counter(found).most_common(1)[0]
        raise KLFusionError(
            f"{where}: expected a vocabulary of unique words, got {word!r} {times} times"
        )
    return [str(word) for word in found]  # numpy's strings become Python's
