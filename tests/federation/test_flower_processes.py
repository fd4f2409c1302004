"""A real SuperLink and real SuperNodes, as processes on loopback."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

import klfusion as kf
from klfusion.io.storage import dumps

pytest.importorskip("flwr")

from tests.helpers.flower_grid import client_of
from tests.helpers.flower_processes import Federation, wait_until

pytestmark = pytest.mark.slow
EXAMPLE = Path(__file__).parents[2] / "examples" / "flower"
TLS_FILES = {"ca": "ca.pem", "cert": "superlink.pem", "key": "superlink.key"}
FAULTY = Path(__file__).parent / "faulty_app"


def bits(fusion):
    """Bytes of the result without the silos, whose provenance lists the requests they handle."""
    return dumps(replace(fusion, silos=None))


def test_example_and_restart(tmp_path):
    store = tmp_path / "store"
    with Federation(tmp_path) as federation:
        nodes = [
            federation.node(f"cellar-{i + 1}", cellar=i, results=str(tmp_path)) for i in (2, 0, 1)
        ]
        log = federation.run(EXAMPLE, store=store)
        assert (store / "global.safetensors").exists(), log

        fit = client_of(EXAMPLE).fit
        models = {
            f"cellar-{i + 1}": fit(SimpleNamespace(node_config={"cellar": i})) for i in range(3)
        }
        expected = kf.fuse(models)
        assert bits(kf.load(store / "global.safetensors")) == bits(expected)
        stored = sorted(map(kf.load, store.glob("silo-*")), key=lambda silo: silo.name)
        assert [silo.name for silo in stored] == list(models)
        assert bits(kf.fuse(stored)) == bits(expected)
        for name in models:  # the fused posterior came back
            received = (tmp_path / f"{name}-received.safetensors").read_bytes()
            assert received == dumps(expected.posterior)

        # A restarted server with all posteriors in its store needs no client.
        federation.end(nodes)
        (store / "global.safetensors").unlink()
        log = federation.run(EXAMPLE, store=store)
        assert bits(kf.load(store / "global.safetensors")) == bits(expected), log


def test_faults(tmp_path):
    store = tmp_path / "store"
    posterior = client_of(FAULTY).posterior
    with Federation(tmp_path) as federation:
        for name in ("a", "b"):
            federation.node(name)
        for fault in ("killed", "large"):
            federation.node(fault, fault=fault)
        log = federation.run(FAULTY, store=store, n_silos=4, max_bytes=200_000, timeout=40.0)
        assert (store / "global.safetensors").exists(), log
    fusion = kf.load(store / "global.safetensors")
    assert fusion.silo_names == ("a", "b")
    assert dumps(fusion.posterior) == dumps(kf.fuse([posterior("a"), posterior("b")]).posterior)
    large, killed = fusion.provenance["left_out"]
    assert "expected at most 200000 bytes, got more: raise max_bytes" in large
    assert "no reply within 40 s" in killed
    for note in (large, killed):
        assert f"left out {note}" in log


def commands_of_readme(heading):
    """The shell block under a heading of the example's README."""
    text = (EXAMPLE / "README.md").read_text(encoding="utf-8")
    return text.partition(f"## {heading}\n")[2].partition("```bash\n")[2].partition("```")[0]


@pytest.mark.skipif(
    not (shutil.which("openssl") and shutil.which("ssh-keygen")),
    reason="needs openssl and ssh-keygen",
)
def test_tls_and_authentication(tmp_path):
    commands = commands_of_readme("Certificates and keys")
    subprocess.run(
        ["bash", "-euc", commands], cwd=tmp_path, check=True, capture_output=True, timeout=60
    )
    secrets = tmp_path / "secrets"
    tls = {name: str(secrets / file) for name, file in TLS_FILES.items()}
    store = tmp_path / "store"
    with Federation(tmp_path, tls=tls, auth=True) as federation:
        for number, name in ((1, "a"), (2, "b")):
            key = secrets / f"cellar-{number}"
            said = federation.flwr("supernode", "register", f"{key}.pub", "test", "--name", name)
            assert "registered successfully" in said
            federation.node(name, key=str(key))
        intruder = federation.node("intruder", key=str(secrets / "cellar-3"))  # not registered
        log = federation.run(FAULTY, store=store, n_silos=2, timeout=80.0)
        assert (store / "global.safetensors").exists(), log
        wait_until(lambda: intruder.poll() is not None, "the intruder to be turned away")
        assert "Failed to activate SuperNode" in federation.log("intruder")
    assert kf.load(store / "global.safetensors").silo_names == ("a", "b")
    assert len(list(store.glob("silo-*"))) == 2
