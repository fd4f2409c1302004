"""Topic models: the word of each column, and how often documents use each topic."""

import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence, Set
from typing import Any

import numpy as np

from klfusion._utils.arrays import IntArray
from klfusion.errors import KLFusionError
from klfusion.posteriors.structure.structure import Structure, scatter

KIND = "topics"
VOCABULARY = "vocabulary"  # key in `info`: the words of the columns, or None


def fuse(silos: Sequence[Structure], labels: Sequence[IntArray], n_components: int) -> Structure:
    """Add ``topic_mass`` (L,), the expected words per topic; pool ``doc_topic_prior`` (L,).

    A normalised prior is the expected share of each topic. Shares are averaged over silos, each
    weighted by its number of words. Without these arrays, only the vocabulary is kept.
    """
    if not all({"topic_mass", "doc_topic_prior"} <= s.arrays.keys() for s in silos):
        return Structure(KIND, {}, silos[0].info)
    masses, priors = ([s.arrays[k] for s in silos] for k in ("topic_mass", "doc_topic_prior"))
    mass = scatter(masses, labels, n_components)
    words = [max(own.sum(), 1.0) for own in masses]  # a silo without words keeps its topics
    shares = [n * prior / prior.sum() for n, prior in zip(words, priors, strict=True)]
    pooled = scatter(shares, labels, n_components)
    prior = np.mean([prior.sum() for prior in priors]) * pooled / pooled.sum()
    return Structure(KIND, {"topic_mass": mass, "doc_topic_prior": prior}, silos[0].info)


def checked_words(words: Any, n_words: int, where: str) -> list[str]:
    """The words as a list of Python strings; an error unless they fit the columns."""
    expected = f"{where}: expected a vocabulary"
    # A dict, such as a vectorizer's `vocabulary_`, is not in the order of the columns.
    if not isinstance(words, Iterable) or isinstance(words, str | Mapping | Set):
        raise KLFusionError(
            f"{expected} of strings in the order of the columns, such as "
            f"vectorizer.get_feature_names_out(), got {type(words).__name__}"
        )
    found = list(words)
    for position, word in enumerate(found):
        if not isinstance(word, str):
            got = f"{word!r} at position {position}"
            raise KLFusionError(f"{expected} of strings, got {got}")
    if len(found) != n_words:
        words = f"{n_words} words, one per column of the topics"
        raise KLFusionError(f"{expected} of {words}, got {len(found)}")
    unique = [normalised(word) for word in found]
    if len(set(unique)) < len(unique):
        word, times = Counter(unique).most_common(1)[0]
        raise KLFusionError(f"{expected} of unique words, got {word!r} {times} times")
    return unique


def normalised(word: str) -> str:
    """A Python string in NFC: an accent as part of a letter or beside it is one word."""
    return str(word) if word.isascii() else unicodedata.normalize("NFC", word)
