"""The benchmark of very many silos: what its rows say, without Dask, and the figure."""

from __future__ import annotations

import io
import sys
from contextlib import redirect_stdout

import pytest

pytest.importorskip("threadpoolctl")
from benchmarks import __main__ as command
from benchmarks import measure, scale

TINY = scale.Shape((10, 20), size=3, n_true=5, dim=2)


@pytest.fixture(scope="module")
def rows():
    """Those of two tiny problems, as if Dask were not installed."""
    said = io.StringIO()
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(said):
        patch.setattr(measure, "MIN_SECONDS", 0.0)
        patch.setattr(scale, "QUICK", TINY)
        patch.setitem(sys.modules, "distributed", None)
        found = scale.run(quick=True)
    assert "pip install 'klfusion[dask]'" in said.getvalue()
    return found


@pytest.mark.slow
def test_rows_of_memory_and_files_stay_without_dask(rows):
    doubled, growth, files = rows
    assert doubled["n_silos"] == 20
    assert growth["n_silos"] == [10, 20]
    assert len(growth["all_cpu_s"]) == len(growth["all_mb"]) == 2
    assert "memory_limit" in files["problem"]
    assert [row["size"] for row in rows] == [doubled["size"]] * 3
    assert all(0 <= row["ari"] <= 1 for row in rows)


@pytest.mark.slow
def test_the_figure(rows, tmp_path):
    pytest.importorskip("matplotlib", reason="figures need pip install 'klfusion[plot]'")
    scale.draw(rows, tmp_path / "scaling.png")
    assert (tmp_path / "scaling.png").stat().st_size > 1_000


def test_benchmarks_without_a_figure_say_so(capsys):
    with pytest.raises(SystemExit):
        command.main(["local", "--figure", "figure.png"])
    assert "--figure is for scale" in capsys.readouterr().err


def test_what_is_held_is_told():
    most = measure.high_water_mb()
    assert most is None or most > 10
