"""Imports point one way, the core stays light, and no file reads a pickle."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import klfusion

SOURCE = Path(klfusion.__file__).parent
# A package imports from packages before it in this list, and from itself; nothing else, at the
# head of a file or within a function.
ORDER = [
    "errors",
    "_utils",
    "families",
    "posteriors",
    "objective",
    "assignment",
    "merging",
    "model_size",
    "many_silos",
    "methods",
    "pooling",
    "fusion",
    "io",
    "draws",
    "networks",
    "learners",
    "adapters",
    "privacy",
    "_fuse",
    "out_of_core",
    "updates",
    "report",
    "baselines",
    "federation",
    "__init__",
    "cli",
    "__main__",
]
FILES = sorted(SOURCE.rglob("*.py"))
MOST_MODULES = 8  # beside the packages


def room(path: Path) -> str:
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def imports(path: Path) -> set[str]:
    """The packages of klfusion that a file imports, anywhere in the file."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.level:
            raise AssertionError(f"{path}: expected absolute imports")
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "klfusion":
            parts = (node.module or "").split(".")
            found |= {parts[1]} if len(parts) > 1 else {alias.name for alias in node.names}
        elif isinstance(node, ast.Import):
            names = (alias.name.split(".") for alias in node.names)
            found |= {
                parts[1] if len(parts) > 1 else "" for parts in names if parts[0] == "klfusion"
            }
    return {name if name in ORDER else "__init__" for name in found}


def test_a_package_imports_only_from_packages_before_it():
    level = {name: number for number, name in enumerate(ORDER)}
    assert {room(path) for path in FILES} == set(ORDER)
    wrong = [
        f"{path.relative_to(SOURCE)} imports {there}"
        for path in FILES
        for there in imports(path)
        # The public names are imported for type checkers by the file that lists them.
        if level[there] > level[room(path)]
    ]
    assert not wrong


def test_only_the_package_itself_binds_names_late():
    late = [p for p in FILES if re.search(r"\bprovide\(", p.read_text(encoding="utf-8"))]
    assert [str(p.relative_to(SOURCE)) for p in late] == ["__init__.py", "_utils/package.py"]


def test_few_modules_lie_beside_the_packages():
    assert len(list(SOURCE.glob("*.py"))) <= MOST_MODULES


def test_every_package_says_what_may_stand_in_it():
    for path in SOURCE.rglob("__init__.py"):
        assert ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))), path


def test_assignment_knows_numpy_and_scipy_only():
    for path in (SOURCE / "assignment").glob("*.py"):
        assert imports(path) <= {"_utils", "assignment"}, path


def test_no_pickle():
    for path in FILES:
        text = path.read_text(encoding="utf-8")
        assert "pickle" not in re.sub(r"[Nn]o pickle|ever unpickled", "", text), path
        assert "joblib" not in text, path


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
