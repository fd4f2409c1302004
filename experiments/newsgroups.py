"""20 Newsgroups as word counts, and splits of the documents over silos."""

from __future__ import annotations

import re
import tarfile
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array
from sklearn.feature_extraction.text import ENGLISH_STOP_WORDS, CountVectorizer

from experiments import data

FILE = "20news/20news-bydate.tar.gz"
MIN_DOCUMENTS = 9  # per word; gives 12.8 thousand words, near the 12.5 of the paper
# The paper's five data sets "based on topics of the news articles".
SUBJECTS = {
    "computers": ("comp.",),
    "recreation": ("rec.", "misc."),
    "science": ("sci.",),
    "politics": ("talk.politics.",),
    "religion": ("alt.atheism", "soc.religion.", "talk.religion."),
}
_ATTRIBUTION = re.compile(r"(writes|wrote|says|said)( in [^\n]*)?:\s*$|^In article|^Quoted from")
_WORD = re.compile(r"[a-z]{3,}")

IntArray = NDArray[np.intp]


@dataclass(frozen=True, eq=False)
class Corpus:
    """Documents as word counts.

    Parameters
    ----------
    counts : sparse array of shape (n, V)
    words : list of str
    group : int array of shape (n,)
        Newsgroup of each document.
    groups : list of str
    """

    counts: Any
    words: list[str]
    group: IntArray
    groups: list[str]


@lru_cache(maxsize=1 << 17)
def stem(word: str) -> str:
    """The Porter stem of a word."""
    return str(_stemmer().stem(word))


@lru_cache(maxsize=1)
def _stemmer() -> Any:
    try:
        from gensim.parsing.porter import PorterStemmer  # noqa: PLC0415 (an extra, slow to import)
    except ImportError as error:
        raise ImportError("words are stemmed by gensim: pip install 'klfusion[gensim]'") from error
    return PorterStemmer()


def body(message: str) -> str:
    """A message without its header and without attribution lines."""
    text = message.partition("\n\n")[2]
    return "\n".join(line for line in text.split("\n") if not _ATTRIBUTION.search(line))


def stems(text: str) -> list[str]:
    """Stems of the words of three letters or more, without stop words."""
    found = _WORD.findall(text.lower())
    return [stem(word) for word in found if word not in ENGLISH_STOP_WORDS]


def load(data_dir: Path | None = None) -> Corpus:
    """Read the archive; documents with fewer than two words of the vocabulary are left out."""
    texts, names = [], []
    with tarfile.open(data.find(FILE, data_dir)) as archive:
        members = sorted((m for m in archive if m.isfile()), key=lambda m: m.name)
        for member in members:
            file = archive.extractfile(member)
            assert file is not None  # it is a file
            texts.append(body(file.read().decode("latin-1")))
            names.append(member.name.split("/")[-2])
    vectorizer = CountVectorizer(analyzer=stems, min_df=MIN_DOCUMENTS)
    counts = csr_array(vectorizer.fit_transform(texts)).astype(np.float64)
    groups, group = np.unique(names, return_inverse=True)
    kept = np.flatnonzero(counts.sum(axis=1) > 1)  # one given word and one to predict
    words = [str(word) for word in vectorizer.get_feature_names_out()]
    return Corpus(counts[kept], words, group[kept].astype(np.intp), [str(g) for g in groups])


def by_subject(corpus: Corpus) -> IntArray:
    """Silo of each document by subject; silos hardly overlap."""
    silo = np.empty(len(corpus.groups), dtype=np.intp)
    for g, name in enumerate(corpus.groups):
        silo[g] = next(j for j, start in enumerate(SUBJECTS.values()) if name.startswith(start))
    return silo[corpus.group]


def overlapping(corpus: Corpus, seed: int, n_silos: int = len(SUBJECTS)) -> IntArray:
    """Silo of each document; each newsgroup has Dirichlet(0.5) shares over silos."""
    rng = np.random.default_rng([seed, 1])
    shares = rng.dirichlet(np.full(n_silos, 0.5), size=len(corpus.groups))
    edges = np.cumsum(shares, axis=1)[corpus.group]
    silo = (rng.random((len(corpus.group), 1)) > edges[:, :-1]).sum(axis=1)
    return np.asarray(silo, dtype=np.intp)


@dataclass(frozen=True, eq=False)
class Split:
    """A corpus with held-out documents; the others belong to silos.

    Parameters
    ----------
    corpus : Corpus
    test : bool array of shape (n,)
    silo : int array of shape (n,)
    names : list of str
        Names of the silos.
    own_words : bool
        Whether a silo's vocabulary is that of its own documents.
    """

    corpus: Corpus
    test: NDArray[np.bool_]
    silo: IntArray
    names: list[str]
    own_words: bool = False

    def local(self, j: int) -> tuple[Any, list[str]]:
        """Word counts of a silo, and the words of the columns."""
        counts = self.corpus.counts[np.flatnonzero(~self.test & (self.silo == j))]
        if not self.own_words:
            return counts, self.corpus.words
        kept = np.flatnonzero(counts.sum(axis=0) > 0)
        return counts[:, kept], [self.corpus.words[k] for k in kept]

    def pooled(self) -> Any:
        """Word counts of all silos."""
        return self.corpus.counts[np.flatnonzero(~self.test)]


def splits(corpus: Corpus, seed: int, n_test: int) -> dict[str, Split]:
    """Splits of the documents over silos, with the same held-out documents."""
    n = len(corpus.group)
    test = np.zeros(n, dtype=bool)
    test[np.random.default_rng([seed, 0]).permutation(n)[:n_test]] = True
    subject, numbered = by_subject(corpus), [f"silo {j + 1}" for j in range(len(SUBJECTS))]
    return {
        "by subject": Split(corpus, test, subject, list(SUBJECTS)),
        "overlapping": Split(corpus, test, overlapping(corpus, seed), numbered),
        "own vocabularies": Split(corpus, test, subject, list(SUBJECTS), own_words=True),
    }
