"""Imports point one way, the core stays light, and no file reads a pickle."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import klfusion

SOURCE = Path(klfusion.__file__).parent
# Each layer may import from the layers above it in this list (and from its own).
LAYERS = [
    {"_typing", "_settings", "errors", "memory", "nearest", "progress", "provenance", "threads"}
    | {"two_normals"},
    {"families"},
    {"structure"},
    {"posterior"},
    {"cleaning"},
    {"penalty_path"},
    {"fusion", "problem", "preparation", "vocabulary", "classes", "networks"}
    | {"assignment", "_safetensors", "_files", "_kept", "_values"},
    {"storage", "_document"},
    {"agglomeration", "algorithm", "clusters", "losses", "seeding"}
    | {"path", "refine", "revision", "selection", "parts", "streaming", "globals"},
    {
        "heterogeneity",
        "mean_map",
        "divergences",
        "search",
        "together",
        "scale",
        "method",
        "auto",
        "methods",
        "pooling",
        "robust",
    },
    {"learners"},
    {"units"},
    {"matching"},
    {"adapters", "report"},
    {"silos"},
    {"api"},
    {"record", "batches"},
    {"ledger"},
    {"membership"},
    {"files"},
    {"diagnostics", "rounds"},
    {"baselines"},
    {"__init__"},
    {"demo"},
    {"_console", "_shell"},
    {"cli", "integrations"},
    {"__main__"},
]
LEVEL = {module: level for level, layer in enumerate(LAYERS) for module in layer}
# `fusion.model()`, `report()`, `add()` and the like are conveniences; they import when called.
DEFERRED = {("fusion", "adapters"), ("fusion", "report"), ("fusion", "membership")} | {
    ("api", "files")
}


def room(path: Path) -> str:
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def imports(path: Path) -> set[str]:
    """The rooms of klfusion a file imports, wherever in the file."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("klfusion"):
            parts = (node.module or "").split(".")
            names = [parts[1]] if len(parts) > 1 else [alias.name for alias in node.names]
            found |= {n if n in LEVEL else "__init__" for n in names}
        elif isinstance(node, ast.Import):
            found |= {
                a.name.split(".")[1] if "." in a.name else "__init__"
                for a in node.names
                if a.name.split(".")[0] == "klfusion"
            }
    return found


FILES = sorted(SOURCE.rglob("*.py"))


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(SOURCE)))
def test_imports_point_one_way(path):
    here = room(path)
    assert here in LEVEL, f"{here} is new: give it a layer in LAYERS"
    for there in imports(path):
        if (here, there) not in DEFERRED:
            assert LEVEL[there] <= LEVEL[here], f"{here} imports {there}, which builds on it"


def test_assignment_knows_numpy_and_scipy_only():
    for path in (SOURCE / "assignment").glob("*.py"):
        assert imports(path) <= {"_typing", "assignment"}, path


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(SOURCE)))
def test_no_pickle(path):
    text = path.read_text(encoding="utf-8")
    assert "pickle" not in text.replace("No pickle", "").replace("no pickle", "")
    assert "joblib" not in text


def test_importing_klfusion_is_light():
    heavy = [
        "numpy",
        "scipy",
        "sklearn",
        "torch",
        "jinja2",
        "rich",
        "click",
        "matplotlib",
        "gensim",
        "pandas",
    ]
    code = f"import sys, klfusion; print([m for m in {heavy} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_every_public_name_has_an_example():
    for name in ("diagnose", "fuse", "refine_rounds", "save", "load", "extract", "Posterior"):
        assert ">>>" in (getattr(klfusion, name).__doc__ or ""), name
    for family in klfusion.families.registered_families().values():
        if family.__module__.startswith("klfusion."):
            assert ">>>" in (family.__doc__ or ""), family
