"""scikit-learn's topic models: out, and back again."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.sparse import csr_matrix
from sklearn.base import clone
from sklearn.decomposition import LatentDirichletAllocation

import klfusion as kf
from klfusion.adapters import rebuild
from klfusion.errors import KLFusionError
from klfusion.posteriors.vocabularies import align_vocabularies, words
from tests.helpers.corpora import completion, offices, simulated, vectorizer

SEES = [(0, 1, 2, 3), (2, 3, 4, 5), (4, 5, 6, 7)]
N_DOCUMENTS = 150


def fitted(counts, n_components=4, seed=0, **options):
    options = {"doc_topic_prior": 0.1, "topic_word_prior": 0.05, "max_iter": 15} | options
    return LatentDirichletAllocation(
        n_components=n_components, random_state=seed, **options
    ).fit(counts)  # fmt: skip


@pytest.fixture(scope="module")
def corpus():
    return simulated(SEES, n_documents=N_DOCUMENTS)


@pytest.fixture(scope="module")
def locals_(corpus):
    """Of three starts the best, as training alone can merge two topics into one."""

    def best(counts):
        return max((fitted(counts, seed=seed) for seed in range(3)), key=lambda m: m.score(counts))

    return {f"site-{i}": best(counts) for i, counts in enumerate(corpus[0])}


def permuted(model, order):
    """The same model, its topics in another order."""
    other = clone(model)
    vars(other).update(vars(model))
    other.components_ = model.components_[order]
    other.exp_dirichlet_component_ = model.exp_dirichlet_component_[order]
    return other


class TestRoundTrip:
    @pytest.mark.parametrize("learning", ["batch", "online"])
    def test_a_rebuilt_model_predicts_the_same(self, corpus, learning, tmp_path):
        (train, *_), test = corpus
        model = fitted(train, learning_method=learning, max_iter=5, mean_change_tol=1e-5)
        kf.save(tmp_path / "site.safetensors", kf.extract(model, name="site"))
        again = rebuild(kf.load(tmp_path / "site.safetensors"))
        for x in (test, csr_matrix(test)):
            np.testing.assert_allclose(again.transform(x), model.transform(x), atol=1e-8)
            np.testing.assert_allclose(again.perplexity(x), model.perplexity(x), rtol=1e-8)
            np.testing.assert_allclose(again.score(x), model.score(x), rtol=1e-8)

    def test_default_priors(self, corpus):
        model = fitted(corpus[0][0], doc_topic_prior=None, topic_word_prior=None, max_iter=3)
        again = rebuild(kf.extract(model, name="site"))
        np.testing.assert_allclose(again.perplexity(corpus[1]), model.perplexity(corpus[1]))

    def test_single_precision(self, corpus):
        (train, *_), test = corpus
        model = fitted(train.astype(np.float32), max_iter=5)
        again = rebuild(kf.extract(model, name="site"))
        x = test.astype(np.float32)
        assert again.components_.dtype == np.float32
        np.testing.assert_allclose(again.transform(x), model.transform(x), atol=1e-4)

    def test_a_rebuilt_model_can_be_cloned_trained_and_extracted(self, corpus, locals_):
        (train, *_), test = corpus
        model = kf.fuse(locals_).model()
        assert clone(model).set_params(max_iter=2).fit(train).n_iter_ == 2
        model.partial_fit(test)
        assert kf.extract(model, name="again").n_components == model.n_components

    def test_columns_of_a_data_frame_are_the_vocabulary(self, corpus):
        model = fitted(corpus[0][0], max_iter=2)
        model.feature_names_in_ = np.array([f"word{i}" for i in range(400)], dtype=object)
        posterior = kf.extract(model, name="site")
        assert words(posterior) == list(model.feature_names_in_)
        np.testing.assert_array_equal(rebuild(posterior).feature_names_in_, words(posterior))


class TestPosterior:
    def test_counts_are_the_expected_numbers_of_words(self, corpus, locals_):
        posterior = kf.extract(locals_["site-0"], name="a")
        np.testing.assert_allclose(posterior.counts.sum(), corpus[0][0].sum(), rtol=1e-6)

    def test_nothing_of_the_size_of_the_data(self, corpus):
        posterior = kf.extract(fitted(corpus[0][0], max_iter=2), name="a")
        arrays = [posterior.natural, posterior.prior, posterior.counts]
        for array in [*arrays, *posterior.structure.arrays.values()]:
            assert N_DOCUMENTS not in array.shape
            assert array.size <= 4 * 400


class TestErrors:
    def test_unfitted(self):
        with pytest.raises(KLFusionError, match="silo 'a': expected a fitted LatentDirichlet"):
            kf.extract(LatentDirichletAllocation(), name="a")

    @pytest.mark.parametrize(
        ("vocabulary", "message"),
        [
            ([f"w{i}" for i in range(399)], "vocabulary of 400 words.* got 399"),
            (["twice", "twice", *map(str, range(398))], "unique words, got 'twice' 2 times"),
            ([*map(str, range(399)), 7], "strings, got 7 at position 399"),
            ({f"w{i}": i for i in range(400)}, "order of the columns.* got dict"),
        ],
    )
    def test_wrong_vocabulary(self, locals_, vocabulary, message):
        with pytest.raises(KLFusionError, match=f"silo 'a': expected a .*{message}"):
            kf.extract(locals_["site-0"], name="a", vocabulary=vocabulary)

    def test_a_posterior_without_priors_cannot_be_rebuilt(self, locals_):
        posterior = kf.extract(locals_["site-0"], name="a")
        bare = kf.Posterior(
            posterior.family, posterior.natural, name="a", structure=posterior.structure
        )
        with pytest.raises(KLFusionError, match="'a': expected topics with their priors"):
            rebuild(bare)


class TestFusion:
    def test_permuted_copies_give_the_model_back(self, corpus, locals_):
        model = locals_["site-0"]
        copies = {
            "a": model,
            "b": permuted(model, [2, 0, 3, 1]),
            "c": permuted(model, [1, 0, 3, 2]),
        }
        fusion = kf.fuse(copies, pooling="average")
        assert fusion.n_components == 4
        again = fusion.model()
        np.testing.assert_allclose(again.doc_topic_prior_, 0.1)
        order = fusion.labels[0]
        np.testing.assert_allclose(again.components_[order], model.components_, rtol=1e-10)
        np.testing.assert_allclose(
            again.transform(corpus[1])[:, order], model.transform(corpus[1]), atol=1e-8
        )

    def test_fused_predicts_better_than_every_silo(self, corpus, locals_):
        fusion = kf.fuse(locals_)
        assert fusion.n_components == 8
        assert sorted(map(len, map(fusion.sources, range(8)))) == [1, 1, 1, 1, 2, 2, 2, 2]
        fused, test = fusion.model(), corpus[1]
        local = {name: completion(model, test) for name, model in locals_.items()}
        print(f"\n8 topics: fused {completion(fused, test):.3f}, local {local}")  # noqa: T201
        assert completion(fused, test) > max(local.values()) + 1.0
        for model in locals_.values():
            assert fused.perplexity(test) < 0.5 * model.perplexity(test)

    def test_the_prior_of_documents_keeps_its_strength(self, corpus):
        (first, second, _), _ = corpus
        weak = fitted(first, doc_topic_prior=0.1, max_iter=5)
        strong = fitted(second, doc_topic_prior=0.5, max_iter=5)
        posterior = kf.fuse({"a": weak, "b": strong}).posterior
        prior = posterior.structure.arrays["doc_topic_prior"]
        np.testing.assert_allclose(prior.sum(), (4 * 0.1 + 4 * 0.5) / 2)
        assert (prior > 0).all()


def local_documentation():
    """Topics of each office of `corpora.OFFICES`, over its own words; and all test documents."""
    texts = offices()
    posteriors = []
    for name, (train, _) in texts.items():
        counter = vectorizer(min_df=2).fit(train)
        model = fitted(counter.transform(train), n_components=8, topic_word_prior=0.1)
        vocabulary = counter.get_feature_names_out()
        posteriors.append(kf.extract(model, name=name, vocabulary=vocabulary))
    return posteriors, [text for _, test in texts.values() for text in test]


@pytest.mark.slow
def test_real_text_over_different_vocabularies():
    """The figures of the documentation: run with ``-s`` to see them."""
    posteriors, test = local_documentation()
    fusion = kf.fuse(posteriors)
    counts = vectorizer(vocabulary=words(fusion.posterior)).transform(test).toarray()
    local = {p.name: completion(rebuild(p), counts) for p in align_vocabularies(posteriors)}
    fused = completion(fusion.model(), counts)
    print(f"\n{fusion.n_components} topics: fused {fused:.3f}, local {local}")  # noqa: T201
    assert len({p.family.dim for p in posteriors}) == 3
    assert fused > max(local.values()) + 0.4


def test_topics_that_are_no_table_are_refused():
    model = LatentDirichletAllocation(2, random_state=0).fit(np.ones((4, 6)))
    model.components_ = model.components_[0]
    with pytest.raises(KLFusionError, match=r"silo 'a'.*shape \(topics, words\), got \(6,\)"):
        kf.fuse({"a": model, "b": model})


def test_a_silo_without_any_observations_is_refused():
    rng = np.random.default_rng(0)
    with np.errstate(all="ignore"):  # scikit-learn's perplexity of nothing
        empty = LatentDirichletAllocation(3, random_state=0).fit(np.zeros((5, 6)))
    full = LatentDirichletAllocation(2, random_state=0).fit(rng.integers(0, 9, size=(40, 6)))
    with pytest.raises(KLFusionError, match=r"silo 'empty': expected .* words, got one without"):
        kf.fuse({"empty": empty, "full": full})
    with pytest.raises(KLFusionError, match="silo 'empty'"):
        kf.fuse({"full": full, "fuller": full}).add(empty, name="empty")
