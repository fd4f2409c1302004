"""gensim's topic models: out, and back again."""

from __future__ import annotations

import copy

import numpy as np
import pytest
from sklearn.decomposition import LatentDirichletAllocation
from sklearn.feature_extraction.text import CountVectorizer

import klfusion as kf
from klfusion.adapters import rebuild
from klfusion.errors import KLFusionError
from klfusion.posteriors.vocabularies import align_vocabularies, top_words, words
from tests.helpers.corpora import offices, simulated, vectorizer

gensim = pytest.importorskip("gensim")
from gensim.corpora import Dictionary  # noqa: E402
from gensim.models import LdaModel, LdaMulticore  # noqa: E402

SEES = [(0, 1, 2, 3), (2, 3, 4, 5), (4, 5, 6, 7)]


def texts(counts):
    """Documents as lists of words, from counts."""
    return [[f"w{i}" for i in np.flatnonzero(row) for _ in range(row[i])] for row in counts]


def trained(documents, num_topics=4, cls=LdaModel, **options):
    dictionary = Dictionary(documents)
    options = {"alpha": 0.1, "eta": 0.05, "passes": 6, "random_state": 0} | options
    corpus = [dictionary.doc2bow(d) for d in documents]
    return cls(corpus, id2word=dictionary, num_topics=num_topics, **options)


@pytest.fixture(scope="module")
def corpus():
    train, test = simulated(SEES, n_documents=120, n_words=200, n_test=30)
    return [texts(counts) for counts in train], texts(test)


@pytest.fixture(scope="module")
def locals_(corpus):
    """Of two starts the best, as training alone can merge two topics into one."""

    def best(documents):
        models = [trained(documents, random_state=seed) for seed in range(2)]
        return max(models, key=lambda model: perplexity(model, documents))

    return {f"site-{i}": best(documents) for i, documents in enumerate(corpus[0])}


def inference(model, documents):
    """Topics of documents; gensim starts from random ones, so from the same."""
    model.random_state = np.random.RandomState(0)
    return model.inference([model.id2word.doc2bow(d) for d in documents])[0]


def perplexity(model, documents):
    model.random_state = np.random.RandomState(0)
    return model.log_perplexity([model.id2word.doc2bow(d) for d in documents])


def completion(model, documents):
    """Log-likelihood per word of every second word, given the others."""
    rng = np.random.default_rng(0)
    mixed = [rng.permutation(d) for d in documents]
    gamma = inference(model, [list(d[::2]) for d in mixed])
    shares = gamma / gamma.sum(axis=1, keepdims=True)
    topics, ids = model.get_topics(), model.id2word.token2id
    logs = [
        np.log(share @ topics[:, [ids[w] for w in d[1::2]]])
        for share, d in zip(shares, mixed, strict=True)
    ]
    return float(np.concatenate(logs).mean())


def local_documentation():
    """Topics of each office of `corpora.OFFICES`, over its own words; and all test documents."""
    split, models, test = vectorizer().build_analyzer(), {}, []
    for name, (train, held_out) in offices().items():
        known = vectorizer(min_df=2).fit(train).vocabulary_
        documents = [[w for w in split(text) if w in known] for text in train]
        models[name] = trained(documents, num_topics=8, eta=0.1, passes=15)
        test += [split(text) for text in held_out]
    return models, test


class TestRoundTrip:
    @pytest.mark.parametrize(
        "options",
        [
            {},
            {"alpha": "auto", "per_word_topics": True},
            {"alpha": "asymmetric", "eta": None},
            {"dtype": np.float64, "iterations": 100},
        ],
        ids=str,
    )
    def test_a_rebuilt_model_predicts_the_same(self, corpus, options, tmp_path):
        (train, *_), test = corpus
        model = trained(train, **{"passes": 2} | options)
        kf.save(tmp_path / "site.safetensors", kf.extract(model, name="site"))
        again = rebuild(kf.load(tmp_path / "site.safetensors"))
        np.testing.assert_allclose(inference(again, test), inference(model, test), atol=1e-8)
        np.testing.assert_allclose(perplexity(again, test), perplexity(model, test), rtol=1e-8)
        assert again.show_topics() == model.show_topics()
        for each in (model, again):
            each.random_state = np.random.RandomState(1)
        bow = model.id2word.doc2bow(test[0])
        assert again.get_document_topics(bow) == model.get_document_topics(bow)
        assert again[bow] == model[bow]

    def test_a_learned_eta_is_not_in_the_topics(self, corpus):
        (train, *_), test = corpus
        model = trained(train, eta="auto", passes=2)
        again = rebuild(kf.extract(model, name="site"))
        np.testing.assert_allclose(inference(again, test), inference(model, test), atol=1e-8)

    @pytest.mark.filterwarnings("ignore:os.fork\\(\\) was called:RuntimeWarning")  # of JAX
    def test_multicore(self, corpus):
        (train, *_), test = corpus
        model = trained(train, cls=LdaMulticore, workers=1, passes=1)
        again = rebuild(kf.extract(model, name="site"))
        assert type(again) is LdaModel
        np.testing.assert_allclose(inference(again, test), inference(model, test), atol=1e-8)

    def test_a_rebuilt_model_can_be_trained_further_and_extracted(self, corpus, locals_):
        model = kf.fuse(locals_).model()
        model.update([model.id2word.doc2bow(d) for d in corpus[1]])
        assert kf.extract(model, name="again").n_components == model.num_topics

    def test_without_words(self):
        counts = [[(0, 3), (2, 1)], [(1, 2), (2, 2)]]
        model = LdaModel(counts, num_topics=2, random_state=0)
        posterior = kf.extract(model, name="a")
        with pytest.raises(KLFusionError, match="'a': expected topics with a vocabulary"):
            words(posterior)
        assert rebuild(posterior).show_topics(formatted=False)

    def test_ids_with_gaps(self):
        id2word = {2 * i: f"w{i}" for i in range(15)}
        model = LdaModel([[(i, 5) for i in id2word]], id2word=id2word, num_topics=2, random_state=0)
        posterior = kf.extract(model, name="site")
        assert words(posterior) == list(id2word.values())
        np.testing.assert_allclose(posterior.natural, model.state.get_lambda()[:, ::2], rtol=1e-6)


def test_counts_are_the_expected_numbers_of_words(corpus):
    documents = corpus[0][0]
    posterior = kf.extract(trained(documents, passes=1, update_every=0), name="a")
    np.testing.assert_allclose(posterior.counts.sum(), sum(map(len, documents)), rtol=1e-4)
    assert posterior.natural.size <= 4 * 200
    assert all(a.size <= 4 for a in posterior.structure.arrays.values())


class TestErrors:
    def test_untrained(self, corpus):
        with pytest.raises(KLFusionError, match="silo 'a': expected a trained LdaModel"):
            kf.extract(LdaModel(id2word=Dictionary(corpus[1]), num_topics=2), name="a")

    def test_a_prior_for_each_topic(self):
        model = trained([["a", "b"]], num_topics=2, eta=np.ones((2, 2)), passes=1)
        with pytest.raises(KLFusionError, match=r"silo 'a': expected eta .* got shape \(2, 2\)"):
            kf.extract(model, name="a")

    @pytest.mark.parametrize(
        ("id2word", "message"),
        [
            ({0: "a", 1: "a"}, "unique words, got 'a' 2 times"),
            ({0: "a", 1: 1}, "strings, got 1 at"),
        ],
    )
    def test_wrong_words(self, id2word, message):
        model = LdaModel([[(0, 1), (1, 1)]], id2word=id2word, num_topics=2)
        with pytest.raises(KLFusionError, match=f"silo 's': expected a vocabulary of {message}"):
            kf.extract(model, name="s")


class TestFusion:
    @pytest.mark.parametrize("alpha", [0.1, "asymmetric"])
    def test_permuted_copies_give_the_model_back(self, corpus, alpha):
        model, order = trained(corpus[0][0], alpha=alpha), [2, 0, 3, 1]
        other = copy.deepcopy(model)
        other.state.sstats, other.alpha = model.state.sstats[order], model.alpha[order]
        fusion = kf.fuse({"a": model, "b": other}, pooling="average")
        assert fusion.n_components == 4
        again, back = fusion.model(), fusion.labels[0]
        np.testing.assert_allclose(again.alpha[back], model.alpha, rtol=1e-6)
        np.testing.assert_allclose(again.get_topics()[back], model.get_topics(), rtol=1e-5)
        np.testing.assert_allclose(
            perplexity(again, corpus[1]), perplexity(model, corpus[1]), rtol=1e-3
        )

    def test_fused_predicts_better_than_every_silo(self, corpus, locals_):
        """Over vocabularies that differ: each silo's dictionary holds what it has seen."""
        assert len({m.num_terms for m in locals_.values()}) == 3
        assert len({tuple(m.id2word.token2id) for m in locals_.values()}) == 3
        fusion = kf.fuse(locals_)
        assert fusion.n_components == 8
        posteriors = [kf.extract(m, name=name) for name, m in locals_.items()]
        known = set(words(fusion.posterior))
        test = [[w for w in d if w in known] for d in corpus[1]]
        local = {p.name: completion(rebuild(p), test) for p in align_vocabularies(posteriors)}
        fused = completion(fusion.model(), test)
        print(f"\n{fusion.n_components} topics: fused {fused:.3f}, local {local}")  # noqa: T201
        assert fused > max(local.values()) + 0.7

    def test_sources_have_the_words_of_the_global_topic(self, locals_):
        fusion = kf.fuse(locals_)
        local = {name: top_words(kf.extract(m, name=name), 5) for name, m in locals_.items()}
        for g, top in enumerate(top_words(fusion.posterior, 5)):
            for silo, topic in fusion.sources(g):
                assert len(set(top) & set(local[silo][topic])) >= 3

    def test_silos_of_two_libraries(self, corpus, locals_):
        """What matters is the posterior; the model is of the first silo's library."""
        counter = CountVectorizer(analyzer=list).fit(corpus[0][1])
        options = {"doc_topic_prior": 0.1, "topic_word_prior": 0.05, "random_state": 0}
        other = LatentDirichletAllocation(n_components=4, **options)
        other.fit(counter.transform(corpus[0][1]))
        vocabulary = counter.get_feature_names_out()
        silos = [
            kf.extract(locals_["site-1"], name="gensim"),
            kf.extract(other, name="sklearn", vocabulary=vocabulary),
        ]
        fusion = kf.fuse(silos)
        assert fusion.n_components == 4
        assert isinstance(fusion.model(), LdaModel)
        assert isinstance(kf.fuse(silos[::-1]).model(), LatentDirichletAllocation)


@pytest.mark.slow
def test_real_text_over_different_vocabularies():
    """The figures of the documentation: run with ``-s`` to see them."""
    models, documents = local_documentation()
    posteriors = [kf.extract(model, name=name) for name, model in models.items()]
    fusion = kf.fuse(posteriors)
    known = set(words(fusion.posterior))
    test = [[w for w in d if w in known] for d in documents]
    local = {p.name: completion(rebuild(p), test) for p in align_vocabularies(posteriors)}
    fused = completion(fusion.model(), test)
    fewer = {n: completion(kf.fuse(posteriors, n_components=n).model(), test) for n in (16, 8)}
    print(f"\n{fusion.n_components} topics: fused {fused:.3f}, local {local}, {fewer}")  # noqa: T201
    assert len({p.family.dim for p in posteriors}) == 3
    assert min(fused, *fewer.values()) > max(local.values()) + 0.2
