"""The topics experiment in small, and on the data where they are."""

from __future__ import annotations

import csv
import io
import json
import os
import tarfile

import numpy as np
import pytest
from rich.console import Console
from scipy.sparse import csr_array

pytest.importorskip("matplotlib")
pytest.importorskip("gensim")
from experiments import newsgroups, topics
from experiments.topic_scores import Test as Held
from experiments.topic_scores import Topics, coherence

GROUPS = ["alt.atheism", "comp.graphics", "rec.autos", "sci.med", "talk.politics.guns"]


def small_corpus():
    """Five newsgroups; each has two topics of its own, and all have one in common."""
    rng = np.random.default_rng(0)
    words = rng.dirichlet(np.full(200, 0.05), size=11)
    group = np.repeat(np.arange(5), 60)
    own = np.stack([2 * group, 2 * group + 1, np.full(300, 10)], axis=1)
    shares = rng.dirichlet(np.full(3, 0.5), size=300)
    counts = [rng.multinomial(60, s @ words[k]) for s, k in zip(shares, own, strict=True)]
    names = [f"word{k}" for k in range(200)]
    return newsgroups.Corpus(csr_array(np.array(counts, dtype=float)), names, group, GROUPS)


@pytest.mark.slow
def test_a_small_run_writes_everything(tmp_path, monkeypatch):
    monkeypatch.setattr(topics, "FIRST_SEED", 501)  # its own, whatever the experiment's are
    settings = topics.Settings(trials=1, n_topics=3, n_test=50, n_iter=10, n_jobs=1, refits=2)
    console = Console(file=io.StringIO())
    results = topics.run(small_corpus(), tmp_path, settings, console)
    with (tmp_path / "runs.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert {row["split"] for row in rows} == {"by subject", "overlapping", "own vocabularies"}
    assert {row["method"] for row in rows} >= set(topics.METHODS)
    assert json.loads((tmp_path / "results.json").read_text())["methods"] == results["methods"]
    for name in ("time.png", "time.svg", "sizes.png", "sizes.svg"):
        assert (tmp_path / name).stat().st_size > 0
    found = {(r["split"], r["method"]): r for r in results["methods"]}
    ours, apart = (found["by subject", m] for m in (topics.OURS, topics.APART))
    assert 11 <= apart["topics"] <= 15
    assert ours["topics"] < apart["topics"]  # the topic all have is one
    assert ours["log_likelihood"] > found["by subject", topics.AMPS]["log_likelihood"]
    assert abs(ours["log_likelihood"] - apart["log_likelihood"]) < 0.05
    assert results["matched"]["by subject"][0]["sources"]
    assert len(results["refitted"]) == 3


@pytest.mark.slow
def test_overfitted_silos_merge_near_topics(tmp_path, monkeypatch):
    monkeypatch.setattr(topics, "FIRST_SEED", 501)
    settings = topics.Settings(trials=1, n_topics=5, n_test=50, n_iter=10, n_jobs=1)
    rows = topics.overfitted(small_corpus(), tmp_path, settings, Console(file=io.StringIO()))
    found = {row["method"]: row for row in rows}
    assert found[topics.OURS]["nearer"] > max(0.5, found[topics.AMPS]["nearer"])  # chance, AMPS
    assert np.isnan(found[topics.APART]["nearer"])  # nothing is merged
    assert (tmp_path / "overfitted.csv").stat().st_size > 0


def test_fits_of_gensim_are_kept(tmp_path):
    settings = topics.Settings(n_topics=3, n_iter=2, library="gensim", n_jobs=1)
    trials = {1: {"by subject": newsgroups.splits(small_corpus(), 1, 50)["by subject"]}}
    fits = topics.Fits(tmp_path, settings, Console(file=io.StringIO()))
    silos = fits.local(trials)[1, "by subject"]
    assert [p.n_components for p in silos.values()] == [3] * 5
    kept = sorted((tmp_path / "cache").rglob("output.pkl"))
    assert len(kept) == 5
    assert fits.local(trials)[1, "by subject"].keys() == silos.keys()
    assert sorted((tmp_path / "cache").rglob("output.pkl")) == kept
    assert Topics.of(silos["science"], small_corpus()).concentration.shape == (3, 200)


def test_messages_become_stems():
    message = "From: me\nSubject: cars\n\nIn article 5 me@here writes:\nThe running cars ran!\n"
    assert newsgroups.stems(newsgroups.body(message)) == ["run", "car", "ran"]


def test_an_archive_is_read(tmp_path):
    folder = tmp_path / "20news"
    folder.mkdir()
    with tarfile.open(folder / "20news-bydate.tar.gz", "w:gz") as archive:
        for number in range(12):
            text = f"Subject: x\n\nengine wheel {'road' * (number % 2)}".encode()
            info = tarfile.TarInfo(f"20news-bydate-train/rec.autos/{number}")
            info.size = len(text)
            archive.addfile(info, io.BytesIO(text))
    corpus = newsgroups.load(tmp_path)
    assert corpus.words == ["engin", "wheel"]
    assert corpus.counts.shape == (12, 2)
    assert corpus.groups == ["rec.autos"]
    assert (newsgroups.by_subject(corpus) == 1).all()


def test_held_out_words_are_a_tenth_and_none_is_lost():
    corpus = small_corpus()
    split = newsgroups.splits(corpus, 0, 40)["by subject"]
    test = Held.of(split, 0)
    hidden, given = test.hidden.sum(axis=1), test.given.sum(axis=1)
    assert (hidden == 6).all()
    assert (hidden + given == 60).all()


def test_prediction_of_known_topics():
    corpus = small_corpus()
    test = Held.of(newsgroups.splits(corpus, 0, 40)["by subject"], 0)
    flat = Topics(np.ones((1, 200)), 0.1)
    assert test.log_likelihood(flat) == pytest.approx(-np.log(200))
    assert test.agreement(flat) == 0.0
    assert -1.0 <= coherence(flat, corpus.counts) <= 1.0


def test_words_that_always_meet_are_coherent():
    counts = csr_array(np.array([[1.0] * 10 + [0.0] * 10, [0.0] * 10 + [1.0] * 10]))
    together = Topics(np.repeat([[9.0, 1.0]], 10, axis=1).reshape(1, -1), 0.1)
    order = Topics(np.concatenate([np.full(10, 9.0), np.ones(10)])[None], 0.1)
    assert coherence(order, counts) == pytest.approx(1.0)
    assert coherence(together, counts) <= 1.0


@pytest.mark.slow
@pytest.mark.skipif(not os.environ.get("KLFUSION_DATA"), reason="KLFUSION_DATA is not set")
def test_the_data_are_as_described():
    corpus = newsgroups.load()
    assert corpus.counts.shape == (18781, 12796)
    assert len(corpus.groups) == 20
    assert set(newsgroups.by_subject(corpus)) == set(range(5))
