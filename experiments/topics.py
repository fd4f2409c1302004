"""Section 5.3: fusion of topic models of five silos' newsgroups."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from joblib import Memory, Parallel, delayed
from rich.console import Console
from rich.progress import track

import klfusion as kf
from experiments import data, fuse_by_average, newsgroups, topic_fits
from experiments.mocap import shown, summary, write_rows
from experiments.newsgroups import Corpus, Split
from experiments.topic_scores import Test, Topics, coherence, nearer

DESCRIPTION = "topic models of 20 Newsgroups (section 5.3)"
# First of consecutive seeds of trials, none of which served development.
FIRST_SEED = 615
N_TOPICS = 10  # per silo
N_TEST = 1000
MAX_LOSS = 0.02  # nats per word
CURVE = (50, 45, 40, 35, 30, 25, 20, 15, 10)  # sizes on the paths

Silos = dict[str, kf.Posterior]
OURS, APART, AMPS = "KL-fusion", "concatenation", "AMPS"
LOSS, AS_MANY = "KL-fusion, loss at most 0.02", "KL-fusion, as many, by least loss"
WITHIN, POOLED = "KL-fusion, ten topics, within silos", "pooled LDA"
METHODS: dict[str, Callable[[Silos], kf.Fusion]] = {
    OURS: fuse_by_average,
    "KL-fusion, paper's letter": lambda silos: fuse_by_average(silos, method="relaxed"),
    LOSS: lambda silos: fuse_by_average(silos, method=kf.MaxLoss(MAX_LOSS)),
    "KL-fusion, within silos, loss at most 0.02": lambda silos: fuse_by_average(
        silos, method=kf.MaxLoss(MAX_LOSS, within_silos=True)
    ),
    "KL-fusion, homogeneous": lambda silos: fuse_by_average(silos, method="homogeneous"),
    "KL-fusion, ten topics": lambda silos: fuse_by_average(silos, n_components=_largest(silos)),
    WITHIN: lambda silos: fuse_by_average(
        silos, method=kf.MaxLoss(within_silos=True), n_components=_largest(silos)
    ),
    AMPS: kf.baselines.amps,
    APART: lambda silos: fuse_by_average(silos, method=kf.MaxLoss(0.0)),
}


@dataclass(frozen=True)
class Run:
    """One method on one split of one trial: a row of ``runs.csv``."""

    seed: int
    split: str
    method: str
    topics: int
    log_likelihood: float  # nats per held-out word
    cpu_seconds: float  # of the fusion
    npmi: float
    ari: float  # documents' dominant topics against newsgroups


@dataclass(frozen=True)
class Overfitted:
    """One method on overlapping silos that have more topics than they need."""

    seed: int
    method: str
    topics: int
    log_likelihood: float  # nats per held-out word
    ari: float  # documents' dominant topics against newsgroups
    nearer: float  # share of merged pairs that lie nearer than others of the same silos


@dataclass(frozen=True)
class Settings:
    """Settings of the experiment."""

    trials: int = 10
    pooled: int | None = None  # trials with pooled models, the slowest part
    n_topics: int = N_TOPICS
    n_test: int = N_TEST
    n_iter: int = topic_fits.N_ITER
    library: str = "sklearn"
    n_jobs: int = -1
    refits: int = 0  # of the first trial's silos, from other random numbers


def _largest(silos: Silos) -> int:
    return max(p.n_components for p in silos.values())


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of ``python -m experiments topics``."""
    data.add_argument(parser)
    parser.add_argument("--trials", type=int, default=10)
    parser.add_argument("--pooled", type=int, help="trials with pooled models; default: all")
    parser.add_argument("--refits", type=int, default=4, help="refits of the first trial's silos")
    parser.add_argument("--library", choices=["sklearn", "gensim"], default="sklearn")
    parser.add_argument("--jobs", type=int, default=-1, help="processes; -1 is one per core")
    parser.add_argument(
        "--local", type=int, help="overlapping silos alone, with so many topics each (such as 15)"
    )


def main(args: argparse.Namespace, console: Console) -> None:
    """Run everything, show the table."""
    corpus = Memory(args.out / "cache", verbose=0).cache(newsgroups.load)(args.data_dir)
    n, n_words = corpus.counts.shape
    console.print(f"{n:,} documents, {n_words:,} words")
    settings = Settings(
        trials=args.trials, pooled=args.pooled, refits=args.refits, library=args.library,
        n_jobs=args.jobs,
    )  # fmt: skip
    if args.local is not None:
        settings = replace(settings, n_topics=args.local)
        console.print(shown(overfitted(corpus, args.out, settings, console)))
        return
    results = run(corpus, args.out, settings, console)
    console.print(shown(results["methods"]))


def overfitted(
    corpus: Corpus, out: Path, settings: Settings, console: Console
) -> list[dict[str, Any]]:
    """Overlapping silos with many topics; write ``overfitted.csv`` and return the means."""
    name, rows = "overlapping", []
    seeds = [FIRST_SEED + k for k in range(settings.trials)]
    trials = {s: {name: newsgroups.splits(corpus, s, settings.n_test)[name]} for s in seeds}
    for (seed, _), silos in Fits(out, settings, console).local(trials).items():
        test = Test.of(trials[seed][name], seed)
        fused = {method: METHODS[method](silos) for method in (OURS, LOSS, AMPS, APART)}
        fused[AS_MANY] = fuse_by_average(silos, n_components=fused[OURS].n_components)
        for method, fusion in fused.items():
            topics = Topics.of(fusion.posterior, corpus)
            figures = test.log_likelihood(topics), test.agreement(topics)
            size, near = fusion.n_components, nearer(silos, fusion, corpus)
            rows.append(Overfitted(seed, method, size, *figures, near))
    write_rows(out / "overfitted.csv", rows)
    return summary(rows, ["method"])


def run(corpus: Corpus, out: Path, settings: Settings, console: Console) -> dict[str, Any]:
    """Fit, fuse and score; write ``runs.csv``, ``results.json`` and the figures."""
    from experiments import topic_figures  # noqa: PLC0415 (matplotlib is an extra)

    seeds = [FIRST_SEED + k for k in range(settings.trials)]
    trials = {seed: newsgroups.splits(corpus, seed, settings.n_test) for seed in seeds}
    fitted = Fits(out, settings, console)
    silos = fitted.local(trials)
    fused = {
        (seed, name): {method: timed(fuse, own) for method, fuse in METHODS.items()}
        for (seed, name), own in track(silos.items(), "fusing", console=console)
    }
    sizes = {seed: fused[seed, "by subject"][OURS][0].n_components for seed in seeds}
    again = fitted.again(trials[seeds[0]]["by subject"], seeds[0])
    pooled = fitted.pooled({seed: trials[seed] for seed in seeds[: settings.pooled]}, sizes)
    runs = []
    for seed in track(seeds, "scoring", console=console):
        for name, split in trials[seed].items():
            models = {
                m: (Topics.of(f.posterior, corpus), s) for m, (f, s) in fused[seed, name].items()
            }
            for size in (settings.n_topics, sizes[seed]):
                label = "ten topics" if size == settings.n_topics else "as many topics as KL-fusion"
                if (seed, size) in pooled:
                    models[f"{POOLED}, {label}"] = pooled[seed, size], 0.0
            runs += scored(seed, name, split, models)
    write_rows(out / "runs.csv", runs)
    first = seeds[0], "by subject"
    results: dict[str, Any] = {
        "settings": asdict(settings) | {"seeds": seeds, "documents": len(corpus.group)},
        "methods": summary(runs, ["split", "method"]),
        "sizes": {f"{s} {name}": f[OURS][0].n_components for (s, name), f in fused.items()},
        "refitted": [sizes[seeds[0]], *(fuse_by_average(own).n_components for own in again)],
        "curve": curve(silos[first], Test.of(trials[first[0]][first[1]], first[0]), corpus),
        "matched": {
            name: matched(silos[seeds[0], name], fused[seeds[0], name][OURS][0])
            for name in trials[seeds[0]]
        },
    }
    (out / "results.json").write_text(json.dumps(results, indent=1))
    topic_figures.draw(out, [asdict(r) for r in runs], results["curve"])
    return results


class Fits:
    """Parallel fits with a cache on disk."""

    def __init__(self, out: Path, settings: Settings, console: Console) -> None:
        self.settings, self.console = settings, console
        self._fit = Memory(out / "cache", verbose=0).cache(topic_fits.fit)

    def _all(self, tasks: list[tuple[Any, list[str], int, int]], what: str) -> list[Any]:
        settings = self.settings
        done = Parallel(n_jobs=settings.n_jobs, return_as="generator")(
            delayed(self._fit)(*task, settings.n_iter, settings.library) for task in tasks
        )
        return list(track(done, what, total=len(tasks), console=self.console))

    def local(self, trials: dict[int, dict[str, Split]]) -> dict[tuple[int, str], Silos]:
        """The posteriors of all silos of all splits of all trials."""
        keys = [
            (seed, name, j, 1000 * seed + 10 * number + j)
            for seed, splits in trials.items()
            for number, (name, split) in enumerate(splits.items())
            for j in range(len(split.names))
        ]
        tasks = [
            (*trials[s][name].local(j), self.settings.n_topics, own) for s, name, j, own in keys
        ]
        silos: dict[tuple[int, str], Silos] = {}
        for (seed, name, j, _), task, model in zip(
            keys, tasks, self._all(tasks, "fitting silos"), strict=True
        ):
            silo = trials[seed][name].names[j]
            silos.setdefault((seed, name), {})[silo] = self._extracted(model, silo, task[1])
        return silos

    def again(self, split: Split, seed: int) -> list[Silos]:
        """The same silos, fitted from other random numbers."""
        tasks = [
            (*split.local(j), self.settings.n_topics, 1000 * seed + 100 * refit + j)
            for refit in range(1, self.settings.refits + 1)
            for j in range(len(split.names))
        ]
        models = iter(zip(tasks, self._all(tasks, "fitting silos again"), strict=True))
        return [
            {
                name: self._extracted(model, name, task[1])
                for name, (task, model) in zip(split.names, models, strict=False)
            }
            for _ in range(self.settings.refits)
        ]

    def pooled(
        self, trials: dict[int, dict[str, Split]], sizes: dict[int, int]
    ) -> dict[tuple[int, int], Topics]:
        """Models of all documents, with the size of a silo and with that of the fusion."""
        keys = [(s, size) for s in trials for size in sorted({self.settings.n_topics, sizes[s]})]
        splits = {seed: splits["by subject"] for seed, splits in trials.items()}
        tasks = [
            (splits[s].pooled(), splits[s].corpus.words, size, 1000 * s + 90) for s, size in keys
        ]
        models = self._all(tasks, "fitting pooled models")
        return {
            key: Topics.of(self._extracted(model, "pooled", task[1]), splits[key[0]].corpus)
            for key, task, model in zip(keys, tasks, models, strict=True)
        }

    def _extracted(self, model: Any, name: str, words: list[str]) -> kf.Posterior:
        if self.settings.library == "gensim":
            return kf.extract(model, name=name)
        return kf.extract(model, name=name, vocabulary=words)


def timed(fuse: Callable[[Silos], kf.Fusion], silos: Silos) -> tuple[kf.Fusion, float]:
    """A fusion and its CPU seconds, which do not depend on other load."""
    start = time.process_time()
    fusion = fuse(silos)
    return fusion, time.process_time() - start


def scored(
    seed: int, name: str, split: Split, models: dict[str, tuple[Topics, float]]
) -> list[Run]:
    """Every model on the test documents."""
    test, counts = Test.of(split, seed), split.pooled()
    return [
        Run(
            seed, name, method, len(topics.concentration), test.log_likelihood(topics), seconds,
            coherence(topics, counts), test.agreement(topics),
        )
        for method, (topics, seconds) in models.items()
    ]  # fmt: skip


def curve(silos: Silos, test: Test, corpus: Corpus) -> list[dict[str, Any]]:
    """Log-likelihood and estimated loss at sizes along the two paths."""
    rows = []
    whole = fuse_by_average(silos, method=kf.MaxLoss(0.0))  # without topics of no words
    for within in (False, True):
        for size in CURVE:
            if _largest(silos) <= size <= whole.n_components:
                fusion = fuse_by_average(
                    silos,
                    method=kf.MaxLoss(within_silos=True) if within else "auto",
                    n_components=size,
                )
                found = test.log_likelihood(Topics.of(fusion.posterior, corpus))
                path = fusion.path
                assert path is not None  # method "auto" has one
                assert path.losses is not None  # topics have word counts
                losses = dict(zip(path.n_components.tolist(), path.losses.tolist(), strict=True))
                row = {"within_silos": within, "topics": size, "log_likelihood": found}
                # Without merges within silos a path may end before the smallest size.
                rows.append({**row, "estimated_loss": losses.get(size)})
    return rows


def matched(silos: Silos, fusion: kf.Fusion) -> list[dict[str, Any]]:
    """Words and sources of the topics that several silos share."""
    local = {name: kf.vocabulary.top_words(silo, 8) for name, silo in silos.items()}
    words = kf.vocabulary.top_words(fusion.posterior, 8)
    rows = []
    for g in range(fusion.n_components):
        sources = fusion.sources(g)
        if len(sources) > 1:
            own = [{"silo": name, "words": local[name][k]} for name, k in sources]
            rows.append({"words": words[g], "sources": own})
    return rows
