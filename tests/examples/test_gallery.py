"""The gallery: each script is short, runs, draws one picture, and has a page that is current."""

from __future__ import annotations

import re

import pytest

from klfusion.errors import MissingDependencyError

pytest.importorskip("matplotlib", reason="the gallery needs pip install 'klfusion[plot]'")
from examples import make_gallery as gallery

_MOST_LINES = 40  # of a script, its docstring and blank lines included
_MOST_BYTES = 60_000  # of a picture
SLOW = {"many_silos"}  # takes seconds
_DECIMAL = re.compile(r"-?\d+\.\d+")


def assert_current(page: str, made: str) -> None:
    """Pages are equal, but for the last digit of decimals: kernels of BLAS round differently."""
    assert _DECIMAL.sub("#", page) == _DECIMAL.sub("#", made), "run make gallery"
    for written, printed in zip(_DECIMAL.findall(page), _DECIMAL.findall(made), strict=True):
        places = len(written.partition(".")[2])
        assert places == len(printed.partition(".")[2]), "run make gallery"
        assert abs(float(written) - float(printed)) < 1.5 * 10.0**-places, "run make gallery"


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.slow) if name in SLOW else name
        for name in gallery.NAMES
    ],
)
def test_script_runs_and_its_page_is_current(name, tmp_path):
    try:
        printed = gallery.run(name, tmp_path)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] in {"klfusion", "numpy", "scipy", "sklearn"}:
            raise
        pytest.skip(f"{name} needs {error.name}, which is not installed")
    except MissingDependencyError as error:
        pytest.skip(f"{name}: {error}")
    assert [path.name for path in tmp_path.glob("*.png")] == [f"{name}.png"]
    page = (gallery.PAGES / f"{name}.md").read_text(encoding="utf-8")
    assert_current(page, gallery.page(name, printed))


@pytest.mark.parametrize("name", gallery.NAMES)
def test_script_and_picture_are_small(name):
    source = (gallery.SCRIPTS / f"{name}.py").read_text(encoding="utf-8")
    assert len(source.splitlines()) <= _MOST_LINES
    assert (gallery.PAGES / f"{name}.png").stat().st_size <= _MOST_BYTES


def test_every_script_is_in_the_index():
    assert sorted(gallery.NAMES) == sorted(path.stem for path in gallery.SCRIPTS.glob("*.py"))
    assert (gallery.PAGES / "index.md").read_text(encoding="utf-8") == gallery.index()
