"""Documents for the tests of topic models: simulated, and real English that every Python has."""

from __future__ import annotations

import ast
import re
import sysconfig
from pathlib import Path

import numpy as np
from sklearn.feature_extraction.text import CountVectorizer

# Three offices, each with the documentation of its own part of Python's standard library.
OFFICES = {
    "network": ["asyncio", "email", "http", "urllib", "smtplib", "imaplib", "ftplib", "ssl"],
    "testing": ["unittest", "doctest", "logging", "pdb", "inspect", "typing", "argparse"],
    "files": ["os", "shutil", "tarfile", "zipfile", "pathlib", "xml", "json", "importlib"],
}  # fmt: skip


def simulated(sees, n_documents=300, n_words=400, seed=0, n_test=60):
    """Word counts from one topic model; each silo's documents use only the topics it sees.

    Returns the silos' training counts, and test counts from all of them.
    """
    rng = np.random.default_rng(seed)
    topics = rng.dirichlet(np.full(n_words, 0.05), size=1 + max(map(max, sees)))

    def draw(seen, n):
        mixed = rng.dirichlet(np.full(len(seen), 0.3), size=n) @ topics[list(seen)]
        return np.stack([rng.multinomial(80, row) for row in mixed])

    return [draw(seen, n_documents) for seen in sees], np.concatenate(
        [draw(seen, n_test) for seen in sees]
    )


def docstrings(package):
    """Docstrings of at least a dozen words, in a package of the standard library."""
    root = Path(sysconfig.get_path("stdlib"))
    module = root / f"{package}.py"
    files = [module] if module.exists() else sorted((root / package).rglob("*.py"))
    nodes = [n for f in files for n in ast.walk(ast.parse(f.read_text(encoding="utf-8")))]
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    texts = [ast.get_docstring(n) or "" for n in nodes if isinstance(n, kinds)]
    return [text for text in texts if len(re.findall(r"[A-Za-z]{3,}", text)) >= 12]


def offices():
    """Documents of each office: (training, test), every fifth one being for testing."""
    texts = {
        name: [t for p in packages for t in docstrings(p)] for name, packages in OFFICES.items()
    }
    return {
        name: ([t for i, t in enumerate(all_) if i % 5], all_[::5]) for name, all_ in texts.items()
    }


def vectorizer(**options):
    return CountVectorizer(stop_words="english", token_pattern=r"[a-z]{3,}", **options)


def completion(model, counts, seed=0):
    """Log-likelihood per word of half of each document's words, given the other half.

    Unlike `perplexity`, whose bound charges a model for every topic it has however few documents
    are tested, this is a prediction.
    """
    given = np.random.default_rng(seed).binomial(counts, 0.5)
    topics = model.components_ / model.components_.sum(axis=1, keepdims=True)
    hidden = counts - given
    return float((hidden * np.log(model.transform(given) @ topics)).sum() / hidden.sum())
