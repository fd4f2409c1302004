"""Real processes on loopback: one example on Flower, NVFlare and a folder; faults in each."""

from __future__ import annotations

import ast
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner
from sklearn.datasets import load_digits

import klfusion as kf
from klfusion.cli.commands import main
from klfusion.federation import folder
from klfusion.io.storage import dumps
from tests.federation.faulty import faults
from tests.federation.heads import heads
from tests.helpers.federations import (
    FlowerFederation,
    kill,
    run_nvflare,
    start_nvflare,
    wait_until,
)

EXAMPLE = Path(__file__).parents[2] / "examples" / "federation"
FAULTY = Path(__file__).parent / "faulty"
HEADS = Path(__file__).parent / "heads"
NAMES = ("cellar-1", "cellar-2", "cellar-3")
TLS_FILES = {"ca": "ca.pem", "cert": "superlink.pem", "key": "superlink.key"}


def klfusion(*words):
    result = CliRunner().invoke(main, [str(word) for word in words])
    assert result.exit_code == 0, result.output


@pytest.fixture(scope="module")
def by_folder(tmp_path_factory):
    """Data of the example, and its round over a folder by the commands."""
    base = tmp_path_factory.mktemp("folder")
    klfusion("site", "example", base / "data")
    klfusion("coordinator", base / "shared", "--definition", EXAMPLE / "wines.py", "--once")
    for name in NAMES:
        file = base / f"{name}.safetensors"
        klfusion("site", "fit", EXAMPLE / "wines.py", "--name", name,
                 "--set", f"folder={base / 'data'}", "-o", file)  # fmt: skip
        klfusion("site", "send", file, "--to", base / "shared")
    klfusion("coordinator", base / "shared", "--definition", EXAMPLE / "wines.py", "--once")
    return base


def the_same(by_folder, store):
    """Whether messages and result have the bytes of the round over the folder."""
    names = [f"silo-{name}.safetensors" for name in NAMES] + ["global.safetensors"]
    other = by_folder / "shared" / "store"
    return all((store / name).read_bytes() == (other / name).read_bytes() for name in names)


def test_the_example_is_what_fuse_gives(by_folder):
    posteriors = [kf.load(by_folder / f"{name}.safetensors") for name in NAMES]
    expected = kf.fuse(posteriors)
    assert expected.n_components == 3
    fusion = kf.load(by_folder / "shared" / "store" / "global.safetensors")
    assert dumps(fusion.posterior) == dumps(expected.posterior)


@pytest.mark.parametrize("files", [["flower_app.py"], ["nvflare_job.py"], []], ids=str)
def test_user_code_has_at_most_15_lines(files):
    lines = set()
    for file in ["wines.py", *files]:
        tree = ast.parse((EXAMPLE / file).read_text(encoding="utf-8"))
        if "nvflare_job.py" not in files:
            tree.body = [part for part in tree.body if not isinstance(part, ast.If)]
        for part in ast.walk(tree):
            text = isinstance(part, ast.Expr) and isinstance(part.value, ast.Constant)
            if isinstance(part, ast.stmt) and not text:
                lines.add((file, part.lineno))
    assert len(lines) <= 15


def two_stored(store):
    """A condition: messages of two silos are in a store."""
    return lambda: len(list(store.glob("silo-*"))) == 2


def in_second_round(store, notes):
    """A condition: of two sites one has sent its second message, and the other has been asked."""
    sent, asked = store / "second-a.safetensors", notes / "asked-b"
    return lambda: sent.exists() and asked.read_text(encoding="utf-8").endswith("second\n")


@pytest.mark.slow
def test_flower(by_folder, tmp_path):
    """Server and SuperLink are killed when two of three cellars have sent, and started again."""
    pytest.importorskip("flwr")
    store, data = tmp_path / "store", tmp_path / "data"
    shutil.copytree(by_folder / "data", data)
    with FlowerFederation(tmp_path) as federation:
        for name in NAMES[:2]:
            federation.node(name, folder=str(data))
        federation.start_run(EXAMPLE, store)
        wait_until(two_stored(store), "two messages")
        federation.kill_server()
        assert not (store / "global.safetensors").exists()
        for name in NAMES[:2]:
            (data / f"{name}.csv").unlink()  # they are not asked again
        federation.start_server()
        federation.node(NAMES[2], folder=str(data))
        log = federation.run(EXAMPLE, store)
    assert (store / "global.safetensors").exists(), log
    assert the_same(by_folder, store)


@pytest.mark.slow
def test_nvflare(by_folder, tmp_path):
    """The simulator is killed when two of three cellars have sent, and started again."""
    pytest.importorskip("nvflare")
    app = tmp_path / "app"
    shutil.copytree(EXAMPLE, app)
    shutil.copytree(by_folder / "data", app / "data")
    store, late = app / "out", app / "data" / f"{NAMES[2]}.csv"
    late.unlink()
    os.mkfifo(late)  # a cellar that reads it waits
    simulator = start_nvflare(app / "nvflare_job.py", tmp_path / "work")
    try:
        wait_until(two_stored(store), "two messages")
    finally:
        kill(simulator)
    assert not (store / "global.safetensors").exists()
    for name in NAMES:
        (app / "data" / f"{name}.csv").unlink()
    shutil.copy(by_folder / "data" / late.name, late)  # the others are not asked again
    log = run_nvflare(app / "nvflare_job.py", tmp_path / "work")
    assert (store / "global.safetensors").exists(), log
    assert the_same(by_folder, store)


def check_heads(store, notes, log):
    """The second round gave what it gives in one process, and asked again only who was missing."""
    asked = {name: (notes / f"asked-{name}").read_text().split() for name in heads.NAMES}
    assert asked == {"a": ["fit", "second"], "b": ["fit", "second", "second"]}, log
    posteriors = [kf.load(store / f"silo-{name}.safetensors") for name in heads.NAMES]
    network = kf.fuse(posteriors)
    assert dumps(kf.load(store / "first.safetensors").posterior) == dumps(network.posterior)
    sent = [kf.head_statistics(network, *heads.rows(n), name=n) for n in heads.NAMES]
    fusion = kf.load(store / "global.safetensors")
    assert dumps(fusion.posterior) == dumps(kf.fuse(sent).posterior)
    x, y = load_digits(return_X_y=True)
    assert kf.refit_head(network, fusion).score(x / 16.0, y) > 0.9  # of ten classes, five per site


@pytest.mark.slow
def test_heads_on_nvflare(tmp_path, monkeypatch):
    """The simulator is killed in the second round, when one of two sites has sent."""
    pytest.importorskip("nvflare")
    monkeypatch.setenv("HEADS_FOLDER", str(tmp_path))
    app = tmp_path / "app"
    shutil.copytree(HEADS, app)
    simulator = start_nvflare(app / "nvflare_job.py", tmp_path / "work")
    try:
        wait_until(in_second_round(app / "out", tmp_path), "the second round")
    finally:
        kill(simulator)
    (tmp_path / "go").touch()
    log = run_nvflare(app / "nvflare_job.py", tmp_path / "work")
    check_heads(app / "out", tmp_path, log)


def check_faults(store, log, results, copies="a"):
    """The round ended with the honest, who have the result, and says who else there was.

    Without names of nodes a copy of a message may come before it, and ``copies`` has the result.
    """
    assert (store / "global.safetensors").exists(), log
    fusion = kf.load(store / "global.safetensors")
    assert fusion.silo_names == ("a", "b")
    expected = kf.fuse([faults.posterior(name, "second") for name in ("a", "b")])
    assert dumps(fusion.posterior) == dumps(expected.posterior)
    used = {path.name: path.read_bytes() for path in results.glob("used-*")}
    assert set(used.values()) == {dumps(fusion.posterior)}
    names = {name.removeprefix("used-").removesuffix(".safetensors") for name in used}
    assert names in ({"a", "b"}, {copies, "b"})
    assert "did not use the result" not in log
    return " | ".join(fusion.provenance["left_out"])


REASONS = {
    "killed": "reply within",
    "late": "reply within",
    "replays": "'last year'",
    "truncates": "cut short",
    "lies": "silos counted twice",
}


@pytest.mark.slow
def test_faults_on_flower(tmp_path, monkeypatch):
    pytest.importorskip("flwr")
    # Three processes per site start at once: on few cores the honest, too, need most of this.
    monkeypatch.setenv("FAULTY_TIMEOUT", "75")
    monkeypatch.setenv("FAULTY_FOLDER", str(tmp_path))
    with FlowerFederation(tmp_path) as federation:
        for name in ("a", "b", *faults.FAULTS):
            federation.node(name)
        log = federation.run(FAULTY, tmp_path / "store")
    notes = check_faults(tmp_path / "store", log, tmp_path, copies="duplicates")
    # Flower itself may report a node whose process is gone before the time is over.
    assert notes.count("no reply within 75 s") + notes.count("an error of Flower") == 2
    assert "a copy of the message of" in notes
    for reason in REASONS.values():
        assert reason in notes


@pytest.mark.slow
def test_faults_on_nvflare(tmp_path, monkeypatch):
    pytest.importorskip("nvflare")
    monkeypatch.setenv("FAULTY_FOLDER", str(tmp_path))
    shutil.copytree(FAULTY, tmp_path / "app")
    log = run_nvflare(tmp_path / "app" / "nvflare_job.py", tmp_path / "work")
    if "Communication error with client a:" in log or "Communication error with client b:" in log:
        # The simulator lost an honest client at its start; the job is started again.
        log += run_nvflare(tmp_path / "app" / "nvflare_job.py", tmp_path / "work")
    notes = check_faults(tmp_path / "app" / "out", log, tmp_path)
    assert "duplicates: expected a message of 'duplicates', got one of 'a'" in notes
    for name, reason in REASONS.items():
        assert any(name in note and reason in note for note in notes.split(" | ")), name


@pytest.mark.slow
def test_faults_on_a_folder(tmp_path, monkeypatch):
    """The coordinator is killed when all have sent who can, and ends the round when it restarts."""
    monkeypatch.setenv("FAULTY_NAMED", "1")
    monkeypatch.setenv("FAULTY_TIMEOUT", "600")
    command = [sys.executable, "-m", "klfusion"]
    shared = tmp_path / "shared"
    start = [*command, "coordinator", str(shared), "--definition", str(FAULTY / "faults.py")]
    with (tmp_path / "log").open("wb") as log:
        coordinator = subprocess.Popen([*start, "--every", "0.1"], stdout=log, stderr=log)
    try:
        wait_until((shared / "round.json").exists, "the coordinator")
        sites = []
        for name in ("a", "b", "late"):
            kf.save(tmp_path / f"{name}.safetensors", faults.posterior(name))
        for name in ("a", "b"):
            words = ["site", "send", f"{tmp_path / name}.safetensors", "--to", str(shared)]
            sites.append(subprocess.Popen([*command, *words]))
        wait_until(lambda: len(list(shared.glob("store/silo-*"))) == 2, "the honest")
        for name in ("killed", "duplicates", "replays", "truncates", "lies"):
            words = [sys.executable, str(FAULTY / "folder_site.py"), name, str(shared)]
            sites.append(subprocess.Popen(words))
        assert [site.wait(60) for site in sites] == [0, 0, -signal.SIGKILL, 0, 0, 0, 0]
        status = shared / "status.html"
        wait_until(lambda: "lies" in status.read_text(encoding="utf-8"), "all messages")
    finally:
        kill(coordinator)
    monkeypatch.setenv("FAULTY_TIMEOUT", "0.001")
    done = subprocess.run(start, capture_output=True, text=True, timeout=60, check=True)
    fusion = kf.load(shared / "store" / "global.safetensors")
    assert fusion.silo_names == ("a", "b")
    expected = dumps(kf.fuse([faults.posterior("a"), faults.posterior("b")]).posterior)
    assert dumps(fusion.posterior) == expected
    notes = fusion.provenance["left_out"]
    reasons = {**REASONS, "killed": "no usable message", "late": "no usable message",
               "duplicates": "a copy of the message of"}  # fmt: skip
    for name, reason in reasons.items():
        assert any(name in note and reason in note for note in notes), name
        assert name in done.stderr
    late = [*command, "site", "send", str(tmp_path / "late.safetensors"), "--to", str(shared)]
    done = subprocess.run(late, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert "has ended" in done.stderr
    assert folder.receive(shared) == expected


def commands_of_readme(heading):
    """The shell block under a heading of the example's README."""
    text = (EXAMPLE / "README.md").read_text(encoding="utf-8")
    return text.partition(f"# {heading}\n")[2].partition("```bash\n")[2].partition("```")[0]


@pytest.mark.slow
@pytest.mark.skipif(
    not (shutil.which("openssl") and shutil.which("ssh-keygen")),
    reason="needs openssl and ssh-keygen",
)
def test_tls_authentication_and_heads_on_flower(tmp_path, monkeypatch):
    """The server is killed in the second round; its database keeps the registered sites."""
    pytest.importorskip("flwr")
    monkeypatch.setenv("HEADS_FOLDER", str(tmp_path))
    commands = commands_of_readme("Certificates and keys")
    subprocess.run(
        ["bash", "-euc", commands], cwd=tmp_path, check=True, capture_output=True, timeout=60
    )
    secrets, store = tmp_path / "secrets", tmp_path / "store"
    tls = {name: str(secrets / file) for name, file in TLS_FILES.items()}
    with FlowerFederation(tmp_path, tls=tls, auth=True) as federation:
        for name, cellar in zip(heads.NAMES, NAMES, strict=False):
            key = secrets / cellar
            said = federation.flwr("supernode", "register", f"{key}.pub", "test", "--name", name)
            assert "registered successfully" in said
            federation.node(name, auth=str(key))
        intruder = federation.node("intruder", auth=str(secrets / NAMES[2]))  # not registered
        federation.start_run(HEADS, store)
        wait_until(in_second_round(store, tmp_path), "the second round")
        wait_until(lambda: intruder.poll() is not None, "the intruder to be turned away")
        assert "Failed to activate SuperNode" in federation.log("intruder")
        federation.kill_server()
        (tmp_path / "go").touch()
        federation.start_server()
        log = federation.run(HEADS, store)
    check_heads(store, tmp_path, log)


def test_without_nvflare_the_error_names_the_line_to_install():
    code = (
        "import sys; sys.modules['nvflare'] = None\n"
        "try:\n    import klfusion.federation.nvflare\n"
        "except ImportError as error:\n    print(error)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "pip install 'klfusion[nvflare]'" in done.stdout
