"""Real processes on loopback: one example on Flower, NVFlare and a folder; faults in each."""

from __future__ import annotations

import ast
import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

import klfusion as kf
from klfusion.cli.commands import main
from klfusion.io.storage import dumps
from tests.federation.faulty import faults
from tests.helpers.federations import FlowerFederation, run_nvflare, wait_until

EXAMPLE = Path(__file__).parents[2] / "examples" / "federation"
FAULTY = Path(__file__).parent / "faulty"
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


def restarted(by_folder, store, sender):
    """A store as a server leaves that died after the first of three messages, of this sender."""
    shutil.copytree(by_folder / "shared" / "store", store)
    for path in store.iterdir():
        if path.name not in {"journal.jsonl", "silo-cellar-1.safetensors"}:
            path.unlink()
    first, _ = (store / "journal.jsonl").read_text(encoding="utf-8").split("\n", 1)
    line = json.dumps(json.loads(first) | {"sender": sender})
    (store / "journal.jsonl").write_text(line + '\n{"request": "f', encoding="utf-8")
    return store


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


@pytest.mark.slow
def test_flower(by_folder, tmp_path):
    pytest.importorskip("flwr")
    store = tmp_path / "store"
    with FlowerFederation(tmp_path) as federation:
        nodes = [federation.node(n, folder=str(by_folder / "data")) for n in NAMES]
        log = federation.run(EXAMPLE, store=store)
        assert (store / "global.safetensors").exists(), log
        assert the_same(by_folder, store)
        # A restarted server with all posteriors in its store needs no site.
        federation.end(nodes)
        (store / "global.safetensors").unlink()
        log = federation.run(EXAMPLE, store=store)
        assert the_same(by_folder, store), log


@pytest.mark.slow
def test_nvflare(by_folder, tmp_path):
    pytest.importorskip("nvflare")
    app = tmp_path / "app"
    shutil.copytree(EXAMPLE, app)
    shutil.copytree(by_folder / "data", app / "data")
    store = restarted(by_folder, app / "out", "cellar-1")
    (app / "data" / "cellar-1.csv").unlink()  # it is not asked again
    log = run_nvflare(app / "nvflare_job.py", tmp_path / "work")
    assert (store / "global.safetensors").exists(), log
    assert the_same(by_folder, store)


def check_faults(store, log, folder, copies="a"):
    """The round ended with the honest, who have the result, and says who else there was.

    Without names of nodes a copy of a message may come before it, and ``copies`` has the result.
    """
    assert (store / "global.safetensors").exists(), log
    fusion = kf.load(store / "global.safetensors")
    assert fusion.silo_names == ("a", "b")
    expected = kf.fuse([faults.posterior("a"), faults.posterior("b")])
    assert dumps(fusion.posterior) == dumps(expected.posterior)
    used = {path.name: path.read_bytes() for path in folder.glob("used-*")}
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
        log = federation.run(FAULTY, store=tmp_path / "store")
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
    notes = check_faults(tmp_path / "app" / "out", log, tmp_path)
    assert "duplicates: expected a message of 'duplicates', got one of 'a'" in notes
    for name, reason in REASONS.items():
        assert any(name in note and reason in note for note in notes.split(" | ")), name


def commands_of_readme(heading):
    """The shell block under a heading of the example's README."""
    text = (EXAMPLE / "README.md").read_text(encoding="utf-8")
    return text.partition(f"# {heading}\n")[2].partition("```bash\n")[2].partition("```")[0]


@pytest.mark.slow
@pytest.mark.skipif(
    not (shutil.which("openssl") and shutil.which("ssh-keygen")),
    reason="needs openssl and ssh-keygen",
)
def test_tls_and_authentication_on_flower(by_folder, tmp_path):
    pytest.importorskip("flwr")
    commands = commands_of_readme("Certificates and keys")
    subprocess.run(
        ["bash", "-euc", commands], cwd=tmp_path, check=True, capture_output=True, timeout=60
    )
    secrets = tmp_path / "secrets"
    tls = {name: str(secrets / file) for name, file in TLS_FILES.items()}
    store = restarted(by_folder, tmp_path / "store", "node 1")
    with FlowerFederation(tmp_path, tls=tls, auth=True) as federation:
        for number in (2, 3):
            name = f"cellar-{number}"
            key = secrets / name
            said = federation.flwr("supernode", "register", f"{key}.pub", "test", "--name", name)
            assert "registered successfully" in said
            federation.node(name, auth=str(key), folder=str(by_folder / "data"))
        intruder = federation.node("intruder", auth=str(secrets / "cellar-1"))  # not registered
        log = federation.run(EXAMPLE, store=store)
        assert (store / "global.safetensors").exists(), log
        wait_until(lambda: intruder.poll() is not None, "the intruder to be turned away")
        assert "Failed to activate SuperNode" in federation.log("intruder")
    assert the_same(by_folder, store)


def test_without_nvflare_the_error_names_the_line_to_install():
    code = (
        "import sys; sys.modules['nvflare'] = None\n"
        "try:\n    import klfusion.federation.nvflare\n"
        "except ImportError as error:\n    print(error)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "pip install 'klfusion[nvflare]'" in done.stdout
