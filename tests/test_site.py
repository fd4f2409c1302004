"""The documentation as a site: builds without a warning, and loads nothing from elsewhere."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
pytest.importorskip("material", reason="the site needs pip install 'klfusion[docs]'")
pytest.importorskip("mkdocstrings", reason="the site needs pip install 'klfusion[docs]'")


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", folder],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return folder


def test_pages_load_nothing_from_elsewhere(site):
    loads = re.compile(r"<(?:script|img|iframe|link)\b[^>]*\b(?:src|href)=\"?(https?:)?//[^>]*>")
    for page in site.rglob("*.html"):
        found = [m[0] for m in loads.finditer(page.read_text(encoding="utf-8"))]
        assert not [tag for tag in found if 'rel="canonical"' not in tag], page


def test_formulas_link_to_their_code(site):
    page = (site / "how-it-works" / "index.html").read_text(encoding="utf-8")
    for name in ("kl_from", "solve_relaxed", "certified_bound", "penalty_path"):
        assert re.search(rf'href="[^"]*#klfusion\.[\w.]*{name}"', page), name


def test_every_page_is_in_the_navigation():
    listed = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    for page in (ROOT / "docs").rglob("*.md"):
        assert page.relative_to(ROOT / "docs").as_posix() in listed, page
