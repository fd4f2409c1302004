"""Fusion on Dask: real worker processes, killed ones, a scheduler that goes away."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from click.testing import CliRunner

import klfusion as kf
from klfusion._fuse import named_silos
from klfusion.cli.commands import main
from klfusion.out_of_core.batches import fuse_batches
from tests.helpers.silos import normal_wishart_silos, rate_silos

distributed = pytest.importorskip("distributed", reason="needs klfusion[dask]")
dask = pytest.importorskip("klfusion.out_of_core.dask", reason="needs klfusion[dask]")

# The cluster's own threads and sockets end when the interpreter does.
pytestmark = [
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore:Sending large graph"),
]


def many_silos(n_silos, seed):
    silos, truth = normal_wishart_silos(n_silos, n_true=6, seed=seed)
    return silos, np.concatenate(truth)


LOCAL = {
    "n_workers": 2,
    "threads_per_worker": 1,
    "host": "127.0.0.1",
    "dashboard_address": "127.0.0.1:0",
}


@pytest.fixture(scope="module")
def cluster():
    """Workers in threads of this process, which messages reach through sockets."""
    with distributed.LocalCluster(processes=False, protocol="tcp://", **LOCAL) as made:
        yield made


@pytest.fixture
def client(cluster):
    with distributed.Client(cluster, set_as_default=False) as made:
        made.wait_for_workers(2, timeout=60)
        yield made


@pytest.fixture(scope="module")
def processes():
    """A client of workers in processes of their own."""
    with (
        distributed.LocalCluster(**LOCAL) as made,
        distributed.Client(made, set_as_default=False) as found,
    ):
        found.wait_for_workers(2, timeout=60)
        yield found


def fuse_and_disturb(client, silos, disturb):
    """As `dask.fuse` does; ``disturb`` is called before the first sweep over all silos."""
    stages = []

    def report(stage, _done, _total):
        if stage == "sweeping" and stage not in stages:
            disturb()
        stages.append(stage)

    with dask.one_error(client):
        batches = dask.OnWorkers(client, named_silos(silos))
        rng = np.random.default_rng(0)
        found = fuse_batches(batches, "auto", random_state=rng, report=report)
    assert "sweeping" in stages
    return found


def same_labels(one, other):
    return all((a == b).all() for a, b in zip(one.labels, other.labels, strict=True))


def test_it_agrees_with_fusing_in_one_process(client):
    silos, _ = many_silos(50, 0)
    there, here = dask.fuse(silos, client), kf.fuse(silos, pooling="average")
    assert there.n_components == here.n_components == 6
    assert same_labels(there, here)
    np.testing.assert_allclose(there.posterior.natural, here.posterior.natural, rtol=1e-9)
    np.testing.assert_allclose(
        np.concatenate(there.divergences), np.concatenate(here.divergences), rtol=1e-6, atol=1e-9
    )
    assert there.silos is None


def test_equal_states_give_equal_results(client):
    silos, _ = many_silos(30, 1)
    one, other = (dask.fuse(silos, client, random_state=3) for _ in range(2))
    assert same_labels(one, other)
    np.testing.assert_array_equal(one.posterior.natural, other.posterior.natural)


@pytest.mark.slow
def test_workers_in_processes_of_their_own(processes):
    silos, _ = many_silos(50, 0)
    there, here = dask.fuse(silos, processes), kf.fuse(silos, pooling="average")
    assert same_labels(there, here)
    np.testing.assert_allclose(there.posterior.natural, here.posterior.natural, rtol=1e-9)


@pytest.mark.slow
def test_regressions_in_processes_of_their_own(processes):
    silos = []
    for j in range(12):
        own = {"local": ["intercept"], "prior_sd": 3.0}
        mean, names = [0.1 * j, 0.5], ["intercept", "dose"]
        silos.append(kf.coefficients(mean, np.diag([0.1, 0.2]), names, name=f"s{j}", **own))
    there, here = dask.fuse(silos, processes), kf.fuse(silos)
    np.testing.assert_allclose(there.posterior.natural, here.posterior.natural, rtol=1e-9)
    np.testing.assert_allclose(there.site("s7").natural, here.site("s7").natural, rtol=1e-9)


@pytest.mark.slow
def test_a_worker_that_is_killed_in_between_changes_nothing(processes):
    silos, _ = many_silos(60, 2)
    undisturbed = dask.fuse(silos, processes)
    disturbed = fuse_and_disturb(
        processes,
        silos,
        lambda: os.kill(next(iter(processes.run(os.getpid).values())), signal.SIGKILL),
    )
    assert same_labels(disturbed, undisturbed)
    np.testing.assert_allclose(
        disturbed.posterior.natural, undisturbed.posterior.natural, rtol=1e-12
    )


def test_files_futures_and_names(client, tmp_path):
    silos, _ = rate_silos(6)
    for silo in silos:
        kf.save(tmp_path / silo.name, silo)
    here = kf.fuse(silos, pooling="average")
    paths = {f"site {k}": str(tmp_path / silo.name) for k, silo in enumerate(silos)}
    from_paths = dask.fuse(paths, client)
    assert from_paths.silo_names == tuple(paths)
    futures = [client.submit(kf.load, path) for path in paths.values()]
    for there in (from_paths, dask.fuse(futures, client)):
        assert same_labels(there, here)


def test_weights_support_size_and_penalty(client):
    silos, _ = rate_silos(8, seed=3)
    weights = {silo.name: 1.0 + k for k, silo in enumerate(silos)}
    there = dask.fuse(silos, client, weights=weights)
    here = kf.fuse(silos, weights=weights, pooling="average")
    np.testing.assert_allclose(there.posterior.natural, here.posterior.natural, rtol=1e-9)
    assert dask.fuse(silos, client, n_components=5).n_components == 5
    assert dask.fuse(silos, client, method=kf.Penalised(here.penalty)).penalty == here.penalty
    rare = dask.fuse(silos, client, min_support=3)
    assert rare.n_components == kf.fuse(silos).with_min_support(3).n_components


def test_what_is_wrong_with_a_silo_is_told(client, tmp_path):
    silos, _ = rate_silos(3)
    others, _ = normal_wishart_silos(1)
    odd = kf.Posterior(others[0].family, others[0].natural, name="odd")
    with pytest.raises(kf.KLFusionError, match="silo 'odd': expected Gamma"):
        dask.fuse([*silos, odd], client)
    (tmp_path / "damaged").write_bytes(b"\x00" * 100)
    with pytest.raises(kf.KLFusionError, match="damaged"):
        dask.fuse([*silos, str(tmp_path / "damaged")], client)
    with pytest.raises(kf.KLFusionError, match="two silos are named"):
        dask.fuse([*silos, silos[0]], client)


def test_the_command_line(cluster, tmp_path):
    silos, _ = rate_silos(5)
    for silo in silos:
        kf.save(tmp_path / f"{silo.name}.safetensors", silo)
    files = [str(tmp_path / f"{silo.name}.safetensors") for silo in silos]
    out = str(tmp_path / "global.safetensors")
    call = ["fuse", *files, "-o", out, "--scheduler", cluster.scheduler_address]
    done = CliRunner().invoke(main, call)
    assert done.exit_code == 0, done.output
    assert same_labels(kf.load(out), kf.fuse(silos))
    refused = CliRunner().invoke(main, [*call, "--pooling", "product"])
    assert refused.exit_code == 2
    assert "--pooling cannot be used with --scheduler" in refused.output


def test_no_scheduler_is_one_error():
    with pytest.raises(kf.KLFusionError, match=r"expected a Dask scheduler at 'tcp://127.0.0.1:1'"):
        dask.connect("tcp://127.0.0.1:1", timeout="200ms")


@pytest.mark.parametrize("client", ["tcp://127.0.0.1:8786", None])
def test_what_is_no_client(client):
    with pytest.raises(kf.KLFusionError, match=r"expected a connected distributed\.Client"):
        dask.fuse(rate_silos(3)[0], client)


def test_what_is_no_address():
    with pytest.raises(kf.KLFusionError, match="expected the address of a Dask scheduler"):
        dask.connect("nonsense")


@pytest.fixture
def scheduler(tmp_path):
    """A scheduler in a process of its own, and its address."""
    where = tmp_path / "scheduler.json"
    process = subprocess.Popen(
        [sys.executable, "-m", "distributed.cli.dask_scheduler", "--host", "127.0.0.1",
         "--port", "0", "--no-dashboard", "--no-show", "--scheduler-file", str(where)],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    for _ in range(300):
        if where.exists() and where.stat().st_size:
            break
        time.sleep(0.1)
    yield process, where
    process.kill()
    process.wait()


def test_a_cluster_without_workers_is_one_error(scheduler):
    with (
        distributed.Client(scheduler_file=str(scheduler[1]), set_as_default=False) as client,
        pytest.raises(kf.KLFusionError, match=r"expected workers at tcp://.*got none"),
    ):
        dask.fuse(rate_silos(3)[0], client)


@pytest.mark.slow
def test_a_scheduler_that_goes_away_is_one_error(scheduler):
    process, where = scheduler
    worker = subprocess.Popen(
        [sys.executable, "-m", "distributed.cli.dask_worker", "--scheduler-file", str(where),
         "--nthreads", "1", "--no-nanny", "--no-dashboard", "--death-timeout", "5"],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip

    def end_the_scheduler():
        process.kill()
        process.wait()

    try:
        with distributed.Client(
            scheduler_file=str(where), set_as_default=False, timeout=5
        ) as client:
            client.wait_for_workers(1, timeout=60)
            with pytest.raises(kf.KLFusionError, match=r"the scheduler at tcp://.* went away"):
                fuse_and_disturb(client, many_silos(30, 4)[0], end_the_scheduler)
    finally:
        worker.kill()
        worker.wait()
