"""Silos in files, a batch in memory at a time."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from sklearn.decomposition import LatentDirichletAllocation
from sklearn.mixture import BayesianGaussianMixture

import klfusion as kf
from klfusion._fuse import named_silos
from klfusion.cli.commands import main
from klfusion.out_of_core import files
from klfusion.out_of_core.batches import fuse_batches, sample_size
from klfusion.out_of_core.files import Files
from tests.helpers.silos import normal_wishart_silos, rate_silos


@pytest.fixture
def scratch(monkeypatch, tmp_path):
    """A scratch folder to look into."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "scratch"))
    (tmp_path / "scratch").mkdir()
    return tmp_path / "scratch"


def saved(silos, folder):
    paths = [folder / f"{silo.name}.safetensors" for silo in silos]
    for path, silo in zip(paths, silos, strict=True):
        kf.save(path, silo)
    return paths


def assert_same(one, other):
    for a, b in zip(one.labels, other.labels, strict=True):
        np.testing.assert_array_equal(a, b)
    np.testing.assert_allclose(one.posterior.natural, other.posterior.natural, rtol=1e-9)
    np.testing.assert_allclose(
        np.concatenate(one.divergences), np.concatenate(other.divergences), rtol=1e-6, atol=1e-9
    )
    assert one.silo_names == other.silo_names


def needed(paths):
    """Bytes of memory for the largest of some files, of which an error tells."""
    found = []
    for path in paths:
        with pytest.raises(kf.KLFusionError) as error:
            Files([(None, path)], limit=1)
        (number,) = re.findall(r"at least ([0-9,]+) bytes for this file", str(error.value))
        found.append(int(number.replace(",", "")))
    return max(found)


def fuse_within(limit, paths):
    """As with ``memory_limit``, which may not be so small."""
    with Files(named_silos(paths), limit) as batches:
        return fuse_batches(batches, "auto", report=lambda *_: None)


@pytest.mark.parametrize("per_batch", [1, 7, 1000])
def test_batches_do_not_matter(scratch, tmp_path, per_batch):
    silos, _ = normal_wishart_silos(30, n_true=5, seed=1)
    paths = saved(silos, tmp_path)
    assert_same(fuse_within(per_batch * needed(paths), paths), kf.fuse(silos, pooling="average"))
    assert list(scratch.iterdir()) == []


def test_at_most_so_much_is_read_at_a_time(tmp_path):
    paths = saved(normal_wishart_silos(20, seed=2)[0], tmp_path)
    largest = max(path.stat().st_size for path in paths)

    def size(posteriors):
        return sum((tmp_path / f"{p.name}.safetensors").stat().st_size for p in posteriors)

    with Files(named_silos(paths), limit=5 * needed(paths)) as batches:
        sizes = list(batches.map(size))
    assert len(sizes) >= 4
    assert max(sizes) <= 5 * largest
    assert sum(sizes) == sum(path.stat().st_size for path in paths)


def test_the_sample_of_wide_components_is_small():
    sizes = [sample_size(n) for n in (10, 8_000, 50_000)]
    assert sizes[0] == sizes[1] > sizes[2] >= 200
    assert sizes[2] * 50_000 <= 2**24


def test_mixtures_keep_their_weights_and_splits(tmp_path):
    rng = np.random.default_rng(3)
    silos = []
    for j in range(6):
        x = np.concatenate([rng.normal(m, 0.5, size=(80, 2)) for m in (-4.0, 0.0, 4.0)])
        model = BayesianGaussianMixture(n_components=5, random_state=j, max_iter=500).fit(x)
        silos.append(kf.extract(model, name=f"site-{j}"))
    paths = saved(silos, tmp_path)
    there, here = fuse_within(2 * needed(paths), paths), kf.fuse(silos, pooling="average")
    assert there.n_components == here.n_components
    ours, theirs = there.model(), here.model()
    np.testing.assert_allclose(ours.weights_, theirs.weights_, rtol=1e-9)
    np.testing.assert_allclose(there.posterior.counts, here.posterior.counts)


@pytest.mark.parametrize("n_silos", [2, 12])
def test_silos_that_share_nothing(tmp_path, n_silos):
    """Read by batches, or all at once."""
    family, rng = kf.families.NormalWishart(2), np.random.default_rng(0)
    silos = []
    for j in range(n_silos):
        n, mean = np.full(3, 200.0), 1e3 * rng.normal(size=(3, 2))
        natural = family.natural(mean, n, n[:, None, None] * np.stack([np.eye(2)] * 3), n + 3.0)
        silos.append(kf.Posterior(family, natural, name=f"silo-{j}"))
    paths = saved(silos, tmp_path)
    sizes = [f.n_components for f in (fuse_within(needed(paths), paths), kf.fuse_files(paths))]
    assert sizes == [3 * n_silos] * 2


def test_few_silos_are_fused_as_in_memory(tmp_path):
    """Of other sizes, where sites have 40 to 1,000 rows and guess how many clusters there are."""
    rng, silos = np.random.default_rng(5), []
    centres = 6.0 * rng.normal(size=(10, 3))
    for j in range(10):
        held = rng.choice(10, rng.integers(1, 6), replace=False)
        n = int(rng.choice([40, 100, 300, 1000]))
        x = centres[rng.choice(held, n)] + rng.normal(size=(n, 3))
        size = max(1, len(held) + int(rng.integers(-1, 2)))
        model = BayesianGaussianMixture(n_components=size, random_state=0, max_iter=500).fit(x)
        silos.append(kf.extract(model, name=f"site-{j}"))
    paths = saved(silos, tmp_path)
    there, here = kf.fuse_files(paths), kf.fuse(silos, pooling="average")
    assert_same(there, here)
    assert there.explain() == here.explain()
    assert there.silos is None
    assert (there.settings, there.status) == (here.settings, here.status)
    assert_same(kf.fuse_files(paths, min_support=2), here.with_min_support(2))


def test_names_weights_support_and_size(scratch, tmp_path):
    silos, _ = rate_silos(8, seed=3)
    paths = saved(silos, tmp_path)
    given = {f"site {k}": path for k, path in enumerate(paths)}
    weights = dict(zip(given, range(1, 9), strict=True))
    there = kf.fuse_files(given, memory_limit="64MB", weights=weights, min_support=2)
    here = kf.fuse(given, weights=weights, pooling="average").with_min_support(2)
    assert_same(there, here)
    assert kf.fuse_files(paths, memory_limit="64MB", n_components=5).n_components == 5


@pytest.mark.parametrize("limit", ["", "much", "-1GB", 0, True, "1MB"])
def test_limits_that_are_none(limit, tmp_path):
    paths = saved(rate_silos(3)[0], tmp_path)
    with pytest.raises(kf.KLFusionError, match="memory_limit"):
        kf.fuse_files(paths, memory_limit=limit)


def test_what_cannot_be_done_file_by_file(scratch, tmp_path):
    silos, _ = rate_silos(3)
    paths = saved(silos, tmp_path)
    with pytest.raises(kf.KLFusionError, match="expected the path of a file, got Posterior"):
        kf.fuse_files(silos, memory_limit="1GB")
    with pytest.raises(kf.KLFusionError, match="expected a klfusion file, got none"):
        kf.fuse_files([*paths, tmp_path / "gone"], memory_limit="1GB")
    with pytest.raises(kf.KLFusionError, match="expected method 'auto'"):
        kf.fuse_files(paths, memory_limit="1GB", method="binary")
    with pytest.raises(kf.KLFusionError, match="hold what its silos sent"):
        kf.fuse_files(paths, memory_limit="1GB").remove(silos[0].name)
    assert list(scratch.iterdir()) == []


def test_vocabularies_must_be_one(scratch, tmp_path):
    counts = np.random.default_rng(4).poisson(1.0, size=(20, 4))
    silos = [
        kf.extract(
            LatentDirichletAllocation(2, random_state=0).fit(counts),
            name=f"site-{k}",
            vocabulary=[*"abc", last],
        )
        for k, last in enumerate("de")
    ]
    with pytest.raises(kf.KLFusionError, match="silo 'site-1': expected the vocabulary of silo"):
        kf.fuse_files(saved(silos, tmp_path), memory_limit="1GB")


def test_the_command_line(tmp_path):
    silos, _ = rate_silos(5)
    paths = [str(path) for path in saved(silos, tmp_path)]
    out, report = str(tmp_path / "global.safetensors"), tmp_path / "report.html"
    done = CliRunner().invoke(
        main, ["fuse", *paths, "-o", out, "--memory-limit", "1GB", "--report", str(report)]
    )
    assert done.exit_code == 0, done.output
    assert_same(kf.load(out), kf.fuse(silos, pooling="average"))
    assert Path(report).stat().st_size > 10_000


def test_sizes_that_cannot_be(scratch, tmp_path):
    silos, _ = rate_silos(4, seed=5)
    paths = saved(silos, tmp_path)
    for size in (1, 1_000):
        with pytest.raises(kf.KLFusionError) as here:
            kf.fuse(silos, n_components=size)
        with pytest.raises(kf.KLFusionError) as there:
            kf.fuse_files(paths, n_components=size, memory_limit="1GB")
        assert str(here.value) == str(there.value)


def test_one_silo_stays_as_it_is(scratch, tmp_path):
    silos, _ = rate_silos(1)
    there, here = (
        kf.fuse_files(saved(silos, tmp_path), memory_limit="1GB"),
        kf.fuse(silos, pooling="average"),
    )
    assert_same(there, here)
    assert (there.status, there.penalty, there.objective) == (
        here.status,
        here.penalty,
        here.objective,
    )


def test_a_scratch_folder_without_room(scratch, tmp_path, monkeypatch):
    paths = saved(rate_silos(600)[0], tmp_path)  # more components than one sample holds

    def full(*_args, **_kwargs):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(np, "save", full)
    with pytest.raises(kf.KLFusionError, match=r"No space left on device.*set TMPDIR"):
        kf.fuse_files(paths, memory_limit="1GB")
    assert list(scratch.iterdir()) == []


def test_scratch_folders_of_killed_processes_are_removed(tmp_path, monkeypatch):
    fcntl = pytest.importorskip("fcntl")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    for name in ("killed", "running"):
        folder = tmp_path / f"klfusion-scratch-{name}"
        (folder / "0").mkdir(parents=True)
        (folder / "lock").touch()
    other = tmp_path / "klfusion-other"
    other.mkdir()
    with (tmp_path / "klfusion-scratch-running" / "lock").open() as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        files.remove_abandoned()
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "klfusion-other", "klfusion-scratch-running",
    ]  # fmt: skip


@pytest.mark.skipif(os.name == "nt", reason="no POSIX signals")
def test_a_request_to_end_removes_the_scratch_folder(scratch, tmp_path):
    """Also without the command line."""
    rates = kf.families.Gamma()
    for name in "ab":
        silo = kf.Posterior(rates, rates.natural([30.0], [10.0]), name=name)
        kf.save(tmp_path / name, silo)
    code = (
        "import sys, time, klfusion as kf\n"
        "from klfusion.out_of_core import files\n"
        "def wait(*args, **kwargs):\n    print('ready', flush=True)\n    time.sleep(60)\n"
        "files.fuse_batches = wait\n"
        "kf.fuse_files(sys.argv[1:], memory_limit='64MB')"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path / "a"), str(tmp_path / "b")],
        stdout=subprocess.PIPE, text=True, env={**os.environ, "TMPDIR": str(scratch)},
    ) as process:  # fmt: skip
        assert process.stdout.readline() == "ready\n"
        assert len(list(scratch.iterdir())) == 1
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=60) == 143
    assert list(scratch.iterdir()) == []
