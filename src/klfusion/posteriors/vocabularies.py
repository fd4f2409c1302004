"""The words of topics, and a common vocabulary for topics that have different ones."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from klfusion._utils.arrays import IntArray
from klfusion._utils.checks import check_integer
from klfusion._utils.running import require_memory
from klfusion._utils.text import brief
from klfusion.errors import IncompatibleSilosError, KLFusionError
from klfusion.families import Dirichlet
from klfusion.posteriors.posterior import Posterior, check_equal
from klfusion.posteriors.structure.kinds import TOPICS, VOCABULARY
from klfusion.posteriors.structure.words import normalised


def words(posterior: Posterior) -> list[str]:
    """The vocabulary of a posterior: the word of each column.

    ``CountVectorizer(vocabulary=kf.vocabulary.words(fusion.posterior))`` counts the words of new
    documents for the fused model.

    Examples
    --------
    >>> import klfusion as kf
    >>> from klfusion.posteriors.structure import Structure
    >>> topics = Structure("topics", info={"vocabulary": ["ball", "vote"]})
    >>> site = kf.Posterior(kf.families.Dirichlet(dim=2), [[8.0, 1.0]], structure=topics)
    >>> kf.vocabulary.words(site)
    ['ball', 'vote']
    """
    vocabulary = _vocabulary(posterior)
    if vocabulary is None:
        how = "extract a scikit-learn model with vocabulary=vectorizer.get_feature_names_out()"
        where = f"{posterior.name!r}"
        raise KLFusionError(f"{where}: expected topics with a vocabulary, got none; {how}")
    return vocabulary


def top_words(posterior: Posterior, n: int = 10) -> list[list[str]]:
    """The ``n`` most probable words of each topic, the most probable first.

    Examples
    --------
    >>> import klfusion as kf
    >>> from klfusion.posteriors.structure import Structure
    >>> topics = Structure("topics", info={"vocabulary": ["ball", "vote", "win"]})
    >>> concentration = [[8.0, 1.0, 5.0], [1.0, 7.0, 3.0]]
    >>> site = kf.Posterior(kf.families.Dirichlet(dim=3), concentration, structure=topics)
    >>> kf.vocabulary.top_words(site, n=2)
    [['ball', 'win'], ['vote', 'win']]
    """
    check_integer("n", n)
    vocabulary, rows = words(posterior), posterior.natural
    n = min(n, len(vocabulary))
    top = np.argpartition(-rows, n - 1, axis=1)[:, :n]
    order = np.argsort(-np.take_along_axis(rows, top, axis=1), axis=1, kind="stable")
    return [[vocabulary[i] for i in row] for row in np.take_along_axis(top, order, axis=1)]


def align_vocabularies(posteriors: Sequence[Posterior]) -> list[Posterior]:
    """Extend topics to one vocabulary: the sorted words of all silos.

    A word that a silo lacks gets the silo's prior in each topic, as in a fit whose documents never
    contain it. Silos with equal vocabularies, and models without one, are returned unchanged.
    """
    vocabularies = [_vocabulary(p) for p in posteriors]
    present = [v for v in vocabularies if v is not None]
    if len({type(p.family) for p in posteriors}) > 1:
        return list(posteriors)  # a later check refuses different families
    if not present:  # topics without vocabularies need equal numbers of words
        topics = [p for p in posteriors if p.structure is not None and p.structure.kind == TOPICS]
        sizes = [(p.name, p.family.size) for p in topics]
        hint = "; give extract the vocabulary of each silo, and the vocabularies may differ"
        check_equal(sizes, f"{sizes[0][1]} words" if sizes else "", hint)
        return list(posteriors)
    if len(present) < len(posteriors):
        lacks = posteriors[vocabularies.index(None)]
        other = next(p for p, v in zip(posteriors, vocabularies, strict=True) if v is not None)
        raise IncompatibleSilosError(
            f"silo {lacks.name!r}: expected topics with a vocabulary as in silo {other.name!r}, "
            f"got {lacks.family} without one; give extract a vocabulary"
        )
    if all(v == present[0] for v in present[1:]):
        return list(posteriors)
    union = sorted(set().union(*present))
    n_bytes = 2 * 8 * len(union) * sum(p.n_components for p in posteriors)
    what = f"all topics over the {len(union):,} words of all silos"
    require_memory(n_bytes, what, "drop rare words before training")
    column = {word: i for i, word in enumerate(union)}
    columns = [np.fromiter(map(column.__getitem__, v), np.intp, len(v)) for v in present]
    return [_expanded(p, own, union) for p, own in zip(posteriors, columns, strict=True)]


def _vocabulary(posterior: Posterior) -> list[str] | None:
    """The words of a posterior's columns, which were checked when it was made."""
    if not isinstance(posterior, Posterior):
        raise KLFusionError(f"expected a Posterior, got {brief(posterior)}")
    structure = posterior.structure
    if structure is None or structure.kind != TOPICS or structure.info.get(VOCABULARY) is None:
        return None
    return [normalised(word) for word in structure.info[VOCABULARY]]


def _expanded(posterior: Posterior, columns: IntArray, union: list[str]) -> Posterior:
    """The same topics over the union: own words at ``columns``, the prior elsewhere."""
    structure, old = posterior.structure, posterior.prior
    assert structure is not None
    if old is None and len(columns) < len(union):
        raise IncompatibleSilosError(
            f"silo {posterior.name!r}: expected a prior, for words that it lacks, "
            f"got none; it has {len(columns)} of {len(union)} words"
        )
    # A prior that differs between words gives new words its average.
    prior = np.full(len(union), 0.0 if old is None else old.mean())
    if old is not None:
        prior[columns] = old
    natural = np.empty((posterior.n_components, len(union)))
    natural[:] = prior
    for row, own in zip(natural, posterior.natural, strict=True):
        row[columns] = own  # one row at a time stays in cache
    structure = replace(structure, info={**structure.info, VOCABULARY: union})
    family, kept = Dirichlet(len(union)), None if old is None else prior
    return replace(posterior, family=family, natural=natural, prior=kept, structure=structure)
