"""Topics over different vocabularies are brought to one."""

from __future__ import annotations

import unicodedata

import numpy as np
import pytest
from sklearn.decomposition import LatentDirichletAllocation

import klfusion as kf
from klfusion.adapters import rebuild
from klfusion.errors import IncompatibleSilosError, KLFusionError
from klfusion.posteriors.structure import Structure
from klfusion.posteriors.vocabularies import align_vocabularies, top_words, words
from tests.helpers.corpora import completion, simulated


def topics(name, vocabulary, natural, prior=0.1, **info):
    dim = np.shape(natural)[1]
    priors = None if prior is None else np.broadcast_to(prior, dim)
    structure = Structure("topics", info={"vocabulary": vocabulary, **info})
    return kf.Posterior(
        kf.families.Dirichlet(dim), natural, name=name, prior=priors, structure=structure
    )


class TestAlign:
    a = topics("a", ["dog", "cat"], [[5.0, 1.0], [1.0, 7.0]], prior=0.1, note="kept")
    b = topics("b", ["cat", "emu"], [[4.0, 3.0]], prior=[0.2, 0.4])

    def test_union_with_each_silos_own_prior(self):
        a, b = align_vocabularies([self.a, self.b])
        assert words(a) == words(b) == ["cat", "dog", "emu"]
        np.testing.assert_array_equal(a.natural, [[1.0, 5.0, 0.1], [7.0, 1.0, 0.1]])
        np.testing.assert_array_equal(a.prior, [0.1, 0.1, 0.1])
        np.testing.assert_allclose(b.natural, [[4.0, 0.3, 3.0]])
        np.testing.assert_allclose(b.prior, [0.2, 0.3, 0.4])
        assert a.structure.info["note"] == "kept"

    def test_the_order_of_silos_changes_nothing(self):
        there, back = align_vocabularies([self.a, self.b]), align_vocabularies([self.b, self.a])
        for one, other in zip(there, reversed(back), strict=True):
            assert words(one) == words(other)
            np.testing.assert_array_equal(one.natural, other.natural)

    def test_what_agrees_is_left_alone(self):
        assert align_vocabularies([self.a, self.a])[0] is self.a
        family = kf.families.Gamma()
        other = kf.Posterior(family, family.natural(shape=[1.0], rate=[1.0]), name="c")
        assert align_vocabularies([other, other])[0] is other
        assert align_vocabularies([]) == []

    def test_another_order_of_the_same_words_needs_no_prior(self):
        a = topics("a", ["dog", "cat"], [[5.0, 1.0]], prior=None)
        b = topics("b", ["cat", "dog"], [[1.0, 5.0]], prior=None)
        one, other = align_vocabularies([a, b])
        np.testing.assert_array_equal(one.natural, other.natural)
        assert one.prior is None
        assert kf.fuse([a, b]).n_components == 1


class TestErrors:
    a = topics("a", ["dog", "cat"], [[5.0, 1.0]])

    def test_some_without_a_vocabulary(self):
        message = "silo 'b': expected topics with a vocabulary as in silo 'a', got Dirichlet"
        for other in (topics("b", None, [[1.0, 2.0]]), topics("b", None, [[1.0, 2.0, 3.0]])):
            for silos in ([self.a, other], [other, self.a]):
                with pytest.raises(IncompatibleSilosError, match=message):
                    kf.fuse(silos)

    def test_none_with_a_vocabulary(self):
        one, two = topics("a", None, [[1.0, 2.0]]), topics("b", None, [[1.0, 2.0, 3.0]])
        with pytest.raises(
            IncompatibleSilosError, match=r"'b': expected 2 words as in silo 'a', got 3"
        ):
            kf.fuse([one, two])

    def test_no_prior_to_fill_with(self):
        other = topics("b", ["emu"], [[1.0]], prior=None)
        with pytest.raises(IncompatibleSilosError, match=r"'b': expected a prior.* 1 of 3 words"):
            kf.fuse([self.a, other])

    @pytest.mark.parametrize("bad", [["x"], ["x", "x"], ["x", 1], "xyz", 7])
    def test_a_vocabulary_is_checked(self, bad):
        with pytest.raises(KLFusionError, match="silo 'b': expected a vocabulary of"):
            topics("b", bad, [[1.0, 2.0]])

    def test_not_topics(self):
        family = kf.families.Gamma()
        structure = Structure("topics", info={"vocabulary": ["dog"]})
        natural = family.natural(shape=[1.0], rate=[1.0])
        with pytest.raises(KLFusionError, match="'b': expected topics to be Dirichlet"):
            kf.Posterior(family, natural, name="b", structure=structure)


def test_long_runs_of_accents_are_not_sorted(monkeypatch):
    """That takes the square of their number: a file of 0.2 MB took five seconds."""
    real, seen = unicodedata.normalize, []
    monkeypatch.setattr(unicodedata, "normalize", lambda f, w: seen.append(w) or real(f, w))
    ordinary, long = "a\u0301\u0316" * 50, "a" + "\u0301\u0316" * 10_000
    silo = topics("a", [ordinary, long], [[5.0, 1.0]])
    assert words(silo) == [real("NFC", ordinary), long]
    assert {*seen} == {ordinary}


def test_two_spellings_of_a_column_are_one_column():
    family = kf.families.NormalWishart(2)
    natural = family.natural(np.zeros((1, 2)), [9.0], np.eye(2)[None], [9.0])
    arrays = {"counts": [9.0], "weight_prior": 1.0}
    silos = [
        kf.Posterior(family, natural * (1 + j), name, structure=Structure(
            "mixture", arrays, {"features": [word, "b"]}))
        for j, (name, word) in enumerate({"a": "caf\u00e9", "b": "cafe\u0301"}.items())
    ]  # fmt: skip
    assert kf.fuse(silos).posterior.structure.info["features"] == ["caf\u00e9", "b"]
    assert kf.fuse(silos[:1]).add(silos[1]).n_silos == 2


def test_two_spellings_of_a_word_are_one_word():
    composed, apart = "caf\u00e9", "cafe\u0301"
    silos = [
        topics("a", [composed, "tea"], [[9.0, 2.0]]),
        topics("b", ["tea", apart], [[2.0, 9.0]]),
    ]
    fusion = kf.fuse(silos)
    assert kf.vocabulary.words(fusion.posterior) == [composed, "tea"]
    assert fusion.n_components == 1


class TestTopWords:
    def test_most_probable_first(self):
        assert top_words(TestAlign.a, 1) == [["dog"], ["cat"]]
        assert top_words(TestAlign.a) == [["dog", "cat"], ["cat", "dog"]]

    def test_topics_without_a_vocabulary_say_so(self):
        with pytest.raises(KLFusionError, match="'b': expected topics with a vocabulary, got none"):
            top_words(topics("b", None, [[1.0, 2.0]]))


def fitted(counts):
    return LatentDirichletAllocation(
        n_components=4, doc_topic_prior=0.1, topic_word_prior=0.05, max_iter=15, random_state=0
    ).fit(counts)


def test_nothing_is_lost_against_a_common_vocabulary():
    train, test = simulated([(0, 1, 2, 3), (2, 3, 4, 5)], n_documents=150)
    names = np.array(sorted(f"w{i}" for i in range(400)))
    common, own = [], []
    for i, counts in enumerate(train):
        seen = np.random.default_rng(i).permutation(np.flatnonzero(counts.sum(axis=0)))
        common.append(kf.extract(fitted(counts), name=f"site-{i}", vocabulary=names))
        own.append(kf.extract(fitted(counts[:, seen]), name=f"site-{i}", vocabulary=names[seen]))
    assert len({p.family.dim for p in own}) == 2
    fusion = kf.fuse(own)
    columns = np.searchsorted(names, words(fusion.posterior))
    test = test[:, columns]
    best_local = max(completion(rebuild(p), test) for p in align_vocabularies(own))
    figures = completion(fusion.model(), test), best_local
    whole = kf.fuse(common)
    reference = rebuild(whole.posterior)
    reference.components_ = reference.components_[:, columns]
    reference.exp_dirichlet_component_ = reference.exp_dirichlet_component_[:, columns]
    reference.n_features_in_ = len(columns)
    assert figures[0] > completion(reference, test) - 0.02
    assert figures[0] > figures[1] + 0.5
