"""Stan's csv files are read without Stan."""

from __future__ import annotations

import numpy as np
import pytest

import klfusion as kf
from klfusion.adapters.draw_files import stan_csv
from tests.helpers.loops import for_each


def write(path, seed, warmup=0):
    rng = np.random.default_rng(seed)
    columns = [
        "lp__",
        "divergent__",
        "beta.1",
        "beta.2",
        "sigma",
        "L.1.1",
        "L.2.1",
        "L.1.2",
        "L.2.2",
    ]
    rows = []
    for k in range(500 + warmup):
        beta = rng.normal([1.0, 2.0], 0.1) + (99.0 if k < warmup else 0.0)
        angle = np.tanh(rng.normal(0.5, 0.1))
        row = [-1.0, int(k == warmup), *beta, np.exp(rng.normal(0.0, 0.1)), 1.0, angle, 0.0,
               np.sqrt(1 - angle**2)]  # fmt: skip
        rows.append(",".join(f"{value:.9g}" for value in row))
    head = ["# stan_version_major = 2", f"#     num_warmup = {warmup} (Default)"]
    head += [f"#     save_warmup = {int(warmup > 0)}", ",".join(columns), "# Adaptation ended"]
    path.write_text(
        "\n".join([*head, *rows, "", "#  Elapsed Time: 0.1 seconds", ""]), encoding="utf-8"
    )
    return path


def test_chains_in_files(tmp_path):
    paths = [write(tmp_path / f"site-{k}.csv", k) for k in range(4)]
    own = kf.extract(paths, name="a")
    assert own.structure.info["coordinates"] == [
        "beta[0]", "beta[1]", "log(sigma)", "partial(L)[0]",
    ]  # fmt: skip
    np.testing.assert_allclose(own.params()["mean"][0], [1.0, 2.0, 0.0, 0.5], atol=0.02)
    assert "4 of 2000 transitions diverged" in own.provenance["findings"][0]
    named = kf.extract(paths, name="a", variables=["beta"], dims={"beta": ["covariate"]},
                       coords={"covariate": ["age", "dose"]})  # fmt: skip
    assert named.structure.info["coordinates"] == ["beta[age]", "beta[dose]"]


def test_warm_up_is_left_out(tmp_path):
    found = stan_csv([write(tmp_path / "a.csv", 0, warmup=50)])
    assert found["draws"]["beta"].shape == (1, 500, 2)
    assert found["draws"]["beta"].max() < 9


def test_a_path_is_a_silo(tmp_path):
    paths = [write(tmp_path / f"site-{k}.csv", k) for k in range(2)]
    assert kf.fuse([str(path) for path in paths]).silo_names == ("site-0", "site-1")


@for_each("text, message", [
    ("a,b\n1,2\n", "expected a csv file of Stan's draws, got none in it"),
    ("lp__,b\n1,x\n", "expected numbers in all 2 columns"),
    ("lp__,b\n1\n1,2\n", "expected numbers in all 2 columns, got text or rows of other lengths"),
    ("lp__,b\n1,20\n1,2", "expected whole lines, got a last one that is cut off"),
    ("", "expected a csv file of Stan's draws"),
])  # fmt: skip
def test_bad_files(tmp_path, text, message):
    path = tmp_path / "a.csv"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(kf.KLFusionError, match=message):
        kf.extract(path, name="a")


def test_bad_paths(tmp_path):
    other = write(tmp_path / "b.csv", 0)
    other.write_text(other.read_text(encoding="utf-8").replace("sigma", "tau"), encoding="utf-8")
    with pytest.raises(kf.KLFusionError, match=r"b.csv: expected the columns of"):
        kf.extract([write(tmp_path / "a.csv", 0), other], name="a")
    with pytest.raises(kf.KLFusionError, match=r"none.csv: expected a csv file of Stan"):
        kf.extract(tmp_path / "none.csv", name="a")
    for bad in ("model.pkl", ["a.nc", "b.nc"], [1.0], []):
        with pytest.raises(kf.KLFusionError, match=r"silo 'a': expected .*path"):
            kf.extract(bad, name="a")
