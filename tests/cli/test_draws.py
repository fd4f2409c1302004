"""Files of draws on the command line."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from click.testing import CliRunner

import klfusion as kf
from klfusion.cli.commands import main


def test_fuse_files_of_arviz(tmp_path):
    with warnings.catch_warnings():  # it announces its next version
        warnings.simplefilter("ignore")
        arviz = pytest.importorskip("arviz")
    pytest.importorskip("h5netcdf")
    files = []
    for k, name in enumerate(["site-a", "site-b"]):
        rng = np.random.default_rng(k)
        posterior = {"beta": rng.normal(size=(4, 300, 2)), "sigma": rng.lognormal(size=(4, 300))}
        diverging = rng.random((4, 300)) < 0.01 * k
        files.append(str(tmp_path / f"{name}.nc"))
        arviz.from_dict(posterior=posterior, sample_stats={"diverging": diverging}).to_netcdf(
            files[-1]
        )
    output = tmp_path / "global.safetensors"
    report = tmp_path / "fusion.html"
    done = CliRunner().invoke(main, ["fuse", *files, "-o", str(output), "--report", str(report)])
    assert done.exit_code == 0, done.output
    assert kf.load(output).silo_names == ("site-a", "site-b")
    assert "note: silo 'site-b'" in done.stderr and "transitions diverged" in done.stderr
    assert report.stat().st_size > 10_000


def test_a_file_that_holds_no_draws(tmp_path):
    bad = tmp_path / "site-a.csv"
    bad.write_text("a,b\n1,2\n", encoding="utf-8")
    done = CliRunner().invoke(main, ["fuse", str(bad), "-o", str(tmp_path / "out.safetensors")])
    assert done.exit_code != 0
    assert "expected a csv file of Stan's draws" in done.stderr
