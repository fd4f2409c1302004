"""Silos with other units: how often `kf.diagnose` names them, and how often honest ones.

Silos are those of `experiments.users`. The last one then has one random column, or all, times a
factor, or two columns by two factors, or every silo standardises its own data; the models are
fitted again. Heads are those of tables of scikit-learn, whose rows are dealt by class. Consortia of
mixed and incomplete tables are those of `experiments.phenotypes`.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from rich.console import Console
from sklearn.datasets import load_breast_cancer, load_digits, load_iris, load_wine
from threadpoolctl import threadpool_limits

import klfusion as kf
from experiments.phenotype_sizes import fitted
from experiments.phenotypes_data import Consortium
from experiments.simulation import FloatArray
from experiments.tables import of_rows
from experiments.users import Problem, Scenario, draw, fit
from klfusion.learners import BayesianHead
from klfusion.updates.findings import findings_of

DESCRIPTION = "silos with other units: named by diagnose, and false alarms"
FIRST_SEED = 64000  # of consecutive seeds, none of which served development
FACTOR, OTHER_FACTOR = 2.2, 0.39  # pounds per kilogram, inches per centimetre
SCENARIOS = {
    "two, all shared": Scenario(2, 4, (4, 4), 3),
    "two, 4 of 5 shared": Scenario(2, 6, (5, 5), 4, shared=4, private=True, surplus=(0, 1)),
    "two, half shared": Scenario(2, 6, (4, 4), 3, shared=2, private=True),
    "two, none shared": Scenario(2, 8, (4, 4), 3, private=True),
    "three, all shared": Scenario(3, 4, (4, 4), 3),
    "five, guessed sizes": Scenario(5, 6, (3, 6), 3, surplus=(-1, 2)),
    "five, maximum likelihood": Scenario(5, 6, (3, 5), 3, bayesian=False),
    "five, shifted centres": Scenario(5, 6, (3, 5), 4, shift=0.6, separation=6.0),
    "five, none shared": Scenario(5, 15, (3, 3), 3, private=True),
    "ten": Scenario(10, 6, (3, 5), 5),
}
COLUMNS = {  # of the table, and what they count
    "one column": "one column",
    "two columns": "two columns",
    "all columns": "all columns",
    "standardised alone": "standardised alone",
    "false alarms": "honest, others",
    "false alarms, common standards": "standardised in common, others",
    "others beside one column": "one column, others",
    "others beside two columns": "two columns, others",
}
TABLES = {"wine": load_wine, "breast cancer": load_breast_cancer, "digits": load_digits,
          "iris": load_iris}  # fmt: skip
SITES = {"two": (2, 5.0), "three": (3, 5.0), "five, few classes": (5, 1.0)}  # and Dirichlet's alpha
LEAST_ROWS = 5  # of a site
UNITS, STANDARDISED = "other units?", "standardised by itself"


def run(scenario: Scenario, seed: int, *, bare: bool) -> dict[str, Any]:
    """Whether each change is found, and whom honest silos accuse; ``bare``: no prior, no counts."""
    rng = np.random.default_rng(seed)
    problem = draw(scenario, rng)
    column, last = int(rng.integers(scenario.dim)), scenario.n_silos - 1
    every = np.concatenate(problem.data)
    second = (column + 1) % scenario.dim
    two = np.ones(scenario.dim)
    two[[column, second]] = FACTOR, OTHER_FACTOR
    one, each = np.where(np.arange(scenario.dim) == column, FACTOR, 1.0), range(scenario.n_silos)
    changes: dict[str, tuple[Sequence[int], Callable[[FloatArray], FloatArray]]] = {
        "honest": ([], lambda x: x),
        "one column": ([last], lambda x: x * one),
        "all columns": ([last], lambda x: x * FACTOR),
        "standardised alone": (each, lambda x: (x - x.mean(axis=0)) / x.std(axis=0)),
        "standardised in common": (each, lambda x: (x - every.mean(axis=0)) / every.std(axis=0)),
        "two columns": ([last], lambda x: x * two),
    }
    found: dict[str, Any] = {"seed": seed}
    for name, (numbers, change) in changes.items():
        silos = [*problem.models]
        for j in numbers:
            silos[j] = _refitted(scenario, problem, j, change, rng)
        if bare:
            silos = [replace(p, prior=None, counts=None, structure=None) for p in silos]
        reasons = [(f.silo, f.reason) for f in findings_of(silos)]
        named = [(s, text) for s, text in reasons if text.endswith(UNITS) or STANDARDISED in text]
        pair = ", ".join(map(str, sorted([column, second])))
        each_by_its_own = ", ".join(map(str, range(scenario.dim)))
        expected = {
            "one column": (f"column {column} ",),
            "two columns": (f"columns {pair} ",),
            "all columns": (f"{name} ", f"columns {each_by_its_own} "),
            "standardised alone": (STANDARDISED,),
        }.get(name, ())
        right = [
            s for s, text in named
            if any(words in text for words in expected) and s in {silos[j].name for j in numbers}
        ]  # fmt: skip
        found[name] = len(right) == len(numbers) > 0
        found[f"{name}, others"] = len(named) > len(right)
    return found


def _refitted(
    scenario: Scenario,
    problem: Problem,
    j: int,
    change: Callable[[FloatArray], FloatArray],
    rng: np.random.Generator,
) -> kf.Posterior:
    """A silo fitted to changed data."""
    old, x = problem.models[j], change(problem.data[j])
    count = {} if scenario.bayesian else {"n_observations": len(x)}
    model = fit(scenario, x, old.n_components, int(rng.integers(2**31)))
    return kf.extract(model, old.name, **count)


def run_heads(table: str, sites: str, seed: int) -> dict[str, Any]:
    """The same of heads on the columns themselves."""
    x, y = TABLES[table](return_X_y=True)
    n, alpha = SITES[sites]
    rng = np.random.default_rng(seed)
    column = int(rng.integers(x.shape[1]))
    shares = rng.dirichlet(np.full(n, alpha), size=y.max() + 1)
    site = np.array([rng.choice(n, p=shares[label]) for label in y])
    numbers = [j for j in range(n) if (site == j).sum() >= LEAST_ROWS]
    scales = {
        "honest": np.ones(x.shape[1]),
        "one column": np.where(np.arange(x.shape[1]) == column, FACTOR, 1.0),
        "all columns": np.full(x.shape[1], FACTOR),
    }
    found: dict[str, Any] = {"seed": seed}
    for name, scale in scales.items():
        silos = []
        for j in numbers:
            rows = x[site == j] * (scale if j == numbers[-1] else 1.0)
            silos.append(kf.extract(BayesianHead().fit(rows, y[site == j]), f"silo-{j}"))
        named = [f for f in findings_of(silos) if f.reason.endswith(UNITS)]
        words = f"column {column} " if name == "one column" else f"{name} "
        right = [f for f in named if f.silo == silos[-1].name and words in f.reason]
        found[name], found[f"{name}, others"] = len(right) == 1, len(named) > len(right)
    return found


def run_consortium(seed: int) -> dict[str, Any]:
    """The same of mixtures over mixed and incomplete columns; the last site that has the column."""
    sites, rng = Consortium.drawn(seed), np.random.default_rng(seed)
    numbers = [column.name for column in sites.schema if column.kind == "continuous"]
    column = str(rng.choice(numbers))
    silos = {k: kf.extract(fitted(sites.schema, f, seed), k) for k, f in sites.train.items()}
    measured = {k: f for k, f in sites.train.items() if np.isfinite(f[column].astype(float)).any()}
    last, own = list(measured.items())[-1]
    other = fitted(sites.schema, own | {column: own[column].astype(float) * FACTOR}, seed)
    changed = {"honest": silos, "one column": silos | {last: kf.extract(other, last)}}
    found: dict[str, Any] = {"seed": seed}
    for name, posteriors in changed.items():
        reasons = [f for f in findings_of([*posteriors.values()]) if f.reason.endswith(UNITS)]
        right = [f for f in reasons if f.silo == last and f"column {column!r} " in f.reason]
        right = right if name == "one column" else []
        found[name], found[f"{name}, others"] = len(right) == 1, len(reasons) > len(right)
    return found


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options."""
    parser.add_argument("--seeds", type=int, default=40)
    parser.add_argument("--first-seed", type=int, default=FIRST_SEED)
    parser.add_argument("--scenario", choices=SCENARIOS, action="append")
    parser.add_argument("--heads", action="store_true", help="heads instead of mixtures")
    parser.add_argument("--consortia", action="store_true", help="mixed and incomplete tables")
    parser.add_argument("--bare", action="store_true", help="without priors and counts")


def main(args: argparse.Namespace, console: Console) -> None:
    """How often each change is found, and false alarms, by scenario."""
    seeds = range(args.first_seed, args.first_seed + args.seeds)
    with threadpool_limits(1):
        if args.heads:
            cases = [(table, sites) for table in TABLES for sites in SITES]
            runs = {", ".join(case): [run_heads(*case, seed) for seed in seeds] for case in cases}
        elif args.consortia:
            runs = {"3 to 20 sites": [run_consortium(seed) for seed in seeds]}
        else:
            names = args.scenario or SCENARIOS
            scenarios = {name: SCENARIOS[name] for name in names}
            runs = {
                name: [run(scenario, seed, bare=args.bare) for seed in seeds]
                for name, scenario in scenarios.items()
            }
    (args.out / "results.json").write_text(json.dumps(runs))
    rows = [
        {"silos": name}
        | {title: sum(one[key] for one in own) for title, key in COLUMNS.items() if key in own[0]}
        for name, own in runs.items()
    ]
    console.print(f"of {args.seeds}:", of_rows(rows))
