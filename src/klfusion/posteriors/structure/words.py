"""The words of a vocabulary: unique strings, one per column of the topics."""

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence, Set
from typing import Any

import numpy as np

from klfusion.errors import KLFusionError

_ACCENTS = 30  # on one letter, the most of the Stream-Safe Text Format of Unicode (UAX 15)
# Accents are no letters or digits, and follow those of the Latin alphabet.
_MARK = r"[^\w\x00-\u02ff]"
_MARKS = re.compile(rf"(?<!{_MARK}){_MARK}{{{_ACCENTS + 1},}}")
_FEW = 256  # words whose set takes less time than sorted hashes, and little memory


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
    for word, times in repeated(unique):
        raise KLFusionError(f"{expected} of unique words, got {word!r} {times} times")
    return unique


def repeated(words: Sequence[str]) -> list[tuple[str, int]]:
    """Words that occur more than once, with their number, most frequent first.

    Sorted hashes take a quarter of the memory of a set, and for few words more time.
    """
    if len(words) < _FEW and len({*words}) == len(words):
        return []
    hashes = np.sort(np.fromiter(map(hash, words), np.int64, len(words)))
    again = {*hashes[1:][hashes[1:] == hashes[:-1]].tolist()}
    found = Counter(word for word in words if hash(word) in again) if again else Counter()
    return [(word, times) for word, times in found.most_common() if times > 1]


def normalised(word: str) -> str:
    """A Python string in NFC: an accent as part of a letter or beside it is one word.

    A long run of accents stays as it is: to sort it takes the square of its length.
    """
    if word.isascii() or unicodedata.is_normalized("NFC", word):
        return str(word)
    for marks in _MARKS.findall(word):
        run = 0
        for mark in marks:
            run = run + 1 if unicodedata.combining(mark) else 0
            if run > _ACCENTS:
                return str(word)
    return unicodedata.normalize("NFC", word)
