"""Every Python block of the documentation runs, from top to bottom; links lead somewhere."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from klfusion.errors import MissingDependencyError

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]


@pytest.mark.filterwarnings("default")  # of the libraries the examples use
@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_code_runs(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    names = {"__name__": f"docs_{page.stem}"}
    for block in blocks:
        try:
            exec(compile(block, str(page), "exec", dont_inherit=True), names)
        except ModuleNotFoundError as error:
            if (error.name or "").partition(".")[0] in {"klfusion", "numpy", "sklearn"}:
                raise
            pytest.skip(f"{page.name} needs {error.name}, which is not installed")
        except MissingDependencyError as error:  # the same, in our words
            pytest.skip(f"{page.name}: {error}")


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text(encoding="utf-8")):
        if "://" not in target:
            assert (page.parent / target).exists(), target


def test_readme_opens_with_the_two_commands():
    top = "\n".join((ROOT / "README.md").read_text(encoding="utf-8").splitlines()[:8])
    assert "make demo" in top
    assert "make test" in top
