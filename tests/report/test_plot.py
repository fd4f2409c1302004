"""The figure, and the table in a notebook."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from klfusion.errors import MissingDependencyError
from tests.report import gallery


@pytest.mark.parametrize("kind", gallery.KINDS)
def test_every_kind_can_be_drawn(kind: str, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    fusion, silos = gallery.KINDS[kind]()
    for given in (None, silos):
        figure = fusion.plot(given)
        figure.savefig(tmp_path / "fusion.png")
        assert (tmp_path / "fusion.png").stat().st_size > 10_000


def test_names_with_dollars_and_no_path_can_be_drawn(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    fusion = gallery.plain()[0]
    odd = replace(fusion, path=None, silo_names=("$\\frac{", "$a$", "100 $"))
    odd.plot().savefig(tmp_path / "fusion.png")
    gallery.thousand_silos().plot().savefig(tmp_path / "fusion.png")


def test_absent_matplotlib_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "klfusion.report.plot", raising=False)
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(MissingDependencyError, match=r"pip install 'klfusion\[plot\]'"):
        gallery.plain()[0].plot()


def test_notebooks_show_an_escaped_table() -> None:
    shown = gallery.plain()[0]._repr_html_()
    assert "3 silos into\n4 components" in shown
    assert gallery.EVIL not in shown
    assert "&lt;script&gt;" in shown
    many = gallery.network()[0]._repr_html_()
    assert "more components" in many
