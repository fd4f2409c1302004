"""The command line: what it prints, its exit codes, and that it never shows a traceback."""

from __future__ import annotations

import html
import json
import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result
from sklearn.naive_bayes import GaussianNB

import klfusion as kf
from klfusion.cli.commands import main
from klfusion.cli.shell import in_options
from klfusion.learners import BayesianHead

RATES = kf.families.Gamma()
KLFUSION = [sys.executable, "-m", "klfusion.cli.commands"]


def silo(name: str, shapes: list[float], counts: list[float] | None = None) -> kf.Posterior:
    natural = RATES.natural(shape=shapes, rate=np.full(len(shapes), 10.0))
    return kf.Posterior(
        RATES, natural, name=name, counts=counts, provenance={"study": "pilot [bold]7[/bold]"}
    )


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    """Save three silos; return their paths."""
    silos = [
        silo("north", [30, 900], [20, 40.5]),
        silo("south", [910, 32, 250], [10, 10, 4]),
        silo("east\x1b[31m[red]", [31, 905], [30, 40]),
    ]
    paths = [tmp_path / f"{i}.safetensors" for i in range(3)]
    for path, posterior in zip(paths, silos, strict=True):
        kf.save(path, posterior)
    return [str(path) for path in paths]


def run(*arguments: object) -> Result:
    return CliRunner().invoke(main, [str(a) for a in arguments])


def real(*arguments: object, **options: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*KLFUSION, *map(str, arguments)],
        capture_output=True, text=True, timeout=60, check=False, **options,
    )  # type: ignore[call-overload,no-any-return]  # fmt: skip


# fuse -------------------------------------------------------------------------------------------


def test_fuse_writes_and_tells(files: list[str], tmp_path: Path) -> None:
    output, page = tmp_path / "global.safetensors", tmp_path / "fusion.html"
    result = run("fuse", *files, "-o", output, "--report", page)
    assert result.exit_code == 0, result.output
    assert "3 silos, 7 local components -> 3 global components" in result.output
    assert "converged" in result.output
    assert "north:1" in result.output
    assert isinstance(kf.load(output), kf.Fusion)
    assert "<!DOCTYPE html>" in page.read_text()


def test_fuse_passes_every_option_on(files: list[str], tmp_path: Path) -> None:
    output = tmp_path / "global.safetensors"
    options = {"method": "binary", "n-init": 2, "max-iter": 7, "penalty": 1.5, "random-state": 3}
    given = [part for key, value in options.items() for part in (f"--{key}", value)]
    assert run("fuse", *files, "-o", output, *given).exit_code == 0
    fusion = kf.load(output)
    assert isinstance(fusion, kf.Fusion)
    assert fusion.penalty == 1.5
    assert "n_init=2" in fusion.method
    assert "max_iter=7" in fusion.method


def test_fuse_goes_below_the_largest_silo_where_asked(files: list[str], tmp_path: Path) -> None:
    output = tmp_path / "global.safetensors"
    refused = run("fuse", *files, "-o", output, "--n-components", 2)
    assert refused.exit_code == 1
    assert "--within-silos of kf.MaxLoss goes below), got 2" in refused.output
    result = run("fuse", *files, "-o", output, "--n-components", 2, "--within-silos")
    assert result.exit_code == 0, result.output
    assert "(1 merged with another of the same silo)" in result.output
    assert run("fuse", *files, "-o", output, "--max-loss", 1e9).exit_code == 0
    fusion = kf.load(output)
    assert isinstance(fusion, kf.Fusion)
    assert fusion.n_components == 3


def test_fuse_takes_every_divergence(files: list[str], tmp_path: Path) -> None:
    output = tmp_path / "global.safetensors"
    option = next(p for p in main.commands["fuse"].params if p.name == "divergence")
    for name in option.type.choices:
        result = run("fuse", *files, "-o", output, "--divergence", name)
        if name == "wasserstein":  # for Gaussians, which these are not
            assert result.exit_code == 1
            continue
        assert result.exit_code == 0, result.output
        fusion = kf.load(output)
        assert isinstance(fusion, kf.Fusion)
        assert fusion.settings.method.divergence == name


def test_a_missing_directory_is_named(files: list[str], tmp_path: Path) -> None:
    result = run("fuse", *files, "-o", tmp_path / "no" / "global.safetensors")
    assert result.exit_code == 1
    assert f"there is no directory {tmp_path / 'no'}" in result.output


def test_fuse_as_json_prints_nothing_else(files: list[str], tmp_path: Path) -> None:
    result = real("fuse", *files, "-o", tmp_path / "g.safetensors", "--json", "--n-components", 4)
    assert result.stderr == ""
    summary = json.loads(result.stdout)
    assert summary["n_components"] == 4
    assert summary["output"] == str(tmp_path / "g.safetensors")
    assert summary["silos"][2]["name"] == "east\x1b[31m[red]"


def test_no_control_codes_reach_a_pipe(files: list[str], tmp_path: Path) -> None:
    for arguments in (
        ["fuse", *files, "-o", str(tmp_path / "g.safetensors")],
        ["inspect", files[2]],
        ["fuse", files[2], files[2], "-o", str(tmp_path / "x.safetensors")],
    ):
        result = real(*arguments)
        assert "\x1b" not in result.stdout + result.stderr


# add and remove ---------------------------------------------------------------------------------


def test_silos_come_and_go(files: list[str], tmp_path: Path) -> None:
    output, page = tmp_path / "global.safetensors", tmp_path / "fusion.html"
    run("fuse", *files[:2], "-o", output)
    added = run("add", output, files[2], "-o", output)
    assert added.exit_code == 0, added.output
    assert "3 silos, 7 local components -> 3 global components" in added.output
    removed = run("remove", output, "south", "-o", output, "--rematch")
    assert removed.exit_code == 0, removed.output
    assert "2 silos, 4 local components -> 2 global components" in removed.output
    assert output.read_bytes().count(b"south") == 1  # in the history
    assert "'remove'" in run("inspect", output).output
    assert run("report", output, "-o", page).exit_code == 0


def test_inspect_says_whether_a_fusion_holds_what_silos_sent(files: list[str], tmp_path: Path):
    for options, holds in (([], True), (["--forget-silos"], False)):
        output = tmp_path / f"{holds}.safetensors"
        run("fuse", *files, "-o", output, *options)
        assert ("This file holds what its" in run("inspect", output).output) is holds


def test_share_leaves_out_what_silos_sent(files: list[str], tmp_path: Path):
    output, public = tmp_path / "global.safetensors", tmp_path / "public.safetensors"
    run("fuse", *files, "-o", output)
    assert kf.load(output).silos is not None
    result = run("share", output, "-o", public)
    assert result.exit_code == 0
    shared = kf.load(public)
    assert shared.silos is None
    np.testing.assert_array_equal(shared.posterior.natural, kf.load(output).posterior.natural)
    assert "components are of one or two silos" in result.stdout
    for path in files[:2]:  # the third is the average of all
        numbers = kf.load(path).natural.tobytes()
        assert numbers in output.read_bytes()
        assert numbers not in public.read_bytes()
    assert run("share", output, "-o", output).exit_code == 2
    page = tmp_path / "public.html"
    assert run("report", output, "-o", page, "--no-local").exit_code == 0
    assert "none of the silos' own parameters" in html.unescape(page.read_text(encoding="utf-8"))


def test_all_bad_files_are_named_in_one_run(files: list[str], tmp_path: Path):
    bad = [tmp_path / f"bad-{k}.safetensors" for k in range(3)]
    for path in bad:
        path.write_bytes(b"nonsense")
    other = tmp_path / "other.safetensors"
    normal = kf.families.Normal(1)
    kf.save(other, kf.Posterior(normal, normal.natural([[0.0]], [[[1.0]]]), name="other"))
    output = tmp_path / "global.safetensors"
    for command in (["check"], ["fuse", "-o", output]):
        result = run(command[0], *files, *bad, other, *command[1:])
        assert result.exit_code == 1
        assert result.stderr.count("error: ") == 4
        assert all(str(path) in result.stderr for path in [*bad, other])
    assert not output.exists()
    result = run("fuse", *files, *bad, other, "-o", output, "--skip-bad")
    assert result.exit_code == 0, result.output
    assert result.stderr.count("skipped: ") == 4
    fusion = kf.load(output)
    assert fusion.n_silos == len(files)
    assert len(fusion.provenance["skipped"]) == 4
    assert run("fuse", *bad, "-o", output, "--skip-bad").exit_code == 1
    result = run("check", *files)
    assert (result.exit_code, result.stdout.count("usable: ")) == (0, len(files))


def test_skipping_bad_files_does_not_depend_on_their_order(files: list[str], tmp_path: Path):
    """Two models of one silo are both skipped, a copy counts once, and a tie is an error."""
    normal, output = kf.families.Normal(1), tmp_path / "global.safetensors"
    other = kf.Posterior(normal, normal.natural([[0.0]], [[[1.0]]]), name="other")
    again, copied, alien = (tmp_path / f"{k}.safetensors" for k in ("again", "copied", "alien"))
    first = kf.load(files[0])
    kf.save(again, replace(first, natural=2.0 * first.natural))
    copied.write_bytes(Path(files[1]).read_bytes())
    kf.save(alien, other)
    given = [*files, again, copied, alien]
    found = []
    for order in (given, given[::-1]):
        result = run("fuse", *order, "-o", output, "--skip-bad")
        assert result.exit_code == 0, result.output
        fusion = kf.load(output)
        found.append((sorted(fusion.silo_names), len(fusion.provenance["skipped"])))
    assert found[0] == found[1] == (sorted(kf.load(f).name for f in files[1:]), 4)
    for order in ([files[0], alien], [alien, files[0]]):
        result = run("fuse", *order, "-o", output, "--skip-bad")
        assert result.exit_code == 1
        assert result.stderr.count("as many silos are like either") == 2


def test_diagnose_prints_findings(files: list[str], tmp_path: Path):
    output = tmp_path / "global.safetensors"
    run("fuse", *files, "-o", output)
    result = run("diagnose", output)
    assert result.exit_code == 0
    assert result.stdout.startswith("Diagnosis: ")
    assert isinstance(json.loads(run("diagnose", output, "--json").stdout), list)
    again = json.loads(run("diagnose", output, "--json", "--resamples", 3).stdout)
    assert isinstance(again["findings"], list)
    assert [len(own) for own in again["stability"].values()] == [2, 3, 2]
    assert run("diagnose", files[0]).exit_code == 1


def test_a_silo_beside_a_fusion_of_it(files: list[str], tmp_path: Path) -> None:
    output = tmp_path / "global.safetensors"
    run("fuse", *files, "-o", output)
    result = run("check", output, files[0])
    assert "silo 'global' cannot be fused: silos counted twice: 'north', within" in result.stderr


def test_families_are_named_alike(tmp_path: Path) -> None:
    paths = []
    for name, size in (("a", 2), ("b", 3), ("c", 2)):
        family = kf.families.Product(age=kf.families.Gamma(), sex=kf.families.Dirichlet(size))
        paths.append(tmp_path / f"{name}.safetensors")
        kf.save(paths[-1], kf.Posterior(family, np.full((2, family.size), 3.0), name=name))
    result = run("check", *paths)
    expected = "Product(age=Gamma(dim=1), sex=Dirichlet(dim=2)) as in silo 'a', got Product(age="
    assert expected in result.stderr and "factors" not in result.stderr


def test_a_target_that_is_a_directory(files: list[str], tmp_path: Path) -> None:
    result = run("fuse", *files, "-o", tmp_path)
    assert result.exit_code == 1
    assert "expected the name of a file, got a directory" in result.stderr


def test_what_cannot_come_or_go(files: list[str], tmp_path: Path) -> None:
    output = tmp_path / "global.safetensors"
    run("fuse", *files, "-o", output)
    forgot = tmp_path / "forgot.safetensors"
    assert run("fuse", *files, "-o", forgot, "--forget-silos").exit_code == 0
    for arguments, message in (
        (["remove", output, "west"], "expected a silo of"),
        (["add", output, files[0]], "two silos are named 'north'"),
        (["add", files[0], files[1]], "expected a fusion"),
        (["remove", forgot, "north"], "expected one made with --keep-silos, which --memory-limit"),
        (["add", output, output], "silos counted twice: 'north'"),
    ):
        result = run(*arguments, "-o", tmp_path / "new.safetensors")
        assert result.exit_code == 1
        assert message in result.stderr
    assert not (tmp_path / "new.safetensors").exists()
    twice = run("remove", output, "north", "south", "north", "-o", tmp_path / "new.safetensors")
    assert (twice.exit_code, "Silo 'north' is named twice." in twice.stderr) == (2, True)


# inspect and report -----------------------------------------------------------------------------


def test_inspect_tells_all_that_a_posterior_gives_away(files: list[str]) -> None:
    output = run("inspect", files[1]).output
    for part in (
        "posterior",
        "south",
        "Gamma(dim=1)",
        "natural",
        "3 x 2",
        "48",
        "counts",
        "sha256",
    ):
        assert part in output
    assert "pilot [bold]7[/bold]" in output
    assert "contains no observations" in output
    assert "1 component of 3 has fewer than 10 observations" in output


def test_inspect_warns_of_a_gram_matrix_of_few_rows(tmp_path: Path) -> None:
    x, y = np.random.default_rng(0).normal(size=(12, 20)), ["a", "b"] * 6
    kf.save(tmp_path / "a.safetensors", kf.extract(BayesianHead().fit(x, y), name="a"))
    output = run("inspect", str(tmp_path / "a.safetensors")).output
    assert "scatter of 20 features of 12 rows determines" in output


def test_inspect_lists_the_parameters_of_columns_one_below_the_other(tmp_path: Path) -> None:
    columns = [kf.learners.Column("age", "continuous", (30, 80))]
    columns.append(kf.learners.Column("dose", "semicontinuous", (10, 40)))
    frame = {"age": [40.0, 50.0, 60.0], "dose": [0.0, 20.0, 30.0]}
    model = kf.learners.MixedMixture(kf.Schema(columns), n_components=1).fit(frame)
    kf.save(tmp_path / "a.safetensors", kf.extract(model, name="a"))
    lines = run("inspect", str(tmp_path / "a.safetensors")).output.splitlines()
    assert any("parameter" in line and "component 0" in line for line in lines)
    assert any("dose other than 0.mean" in line for line in lines)


def test_inspect_as_json_lists_every_array(files: list[str]) -> None:
    header = json.loads(run("inspect", files[1], "--json").stdout)
    assert header["arrays"]["natural"] == {"dtype": "F64", "shape": [3, 2]}
    assert header["bytes"] == Path(files[1]).stat().st_size
    assert header["posterior"]["name"] == "south"


def test_report_from_the_silos_and_as_json(files: list[str], tmp_path: Path) -> None:
    output, page = tmp_path / "global.safetensors", tmp_path / "fusion.html"
    assert run("fuse", *files, "-o", output, "--forget-silos").exit_code == 0
    alone = json.loads(run("report", output, "--json").output)
    given = json.loads(run("report", output, *files, "--json").output)
    assert not alone["map"]["from_parameters"]
    assert given["map"]["from_parameters"]
    assert run("report", output, *files, "-o", page).exit_code == 0
    assert "The error of distances in the plane" in page.read_text()
    assert run("report", output, files[0], "-o", page).exit_code == 1  # not all of them
    assert run("report", output).exit_code == 2
    assert run("report", output, "-o", page, "--json").exit_code == 2
    assert run("report", output, *files, "-o", files[0]).exit_code == 2  # would overwrite it


def test_inspect_and_report_a_fusion(files: list[str], tmp_path: Path) -> None:
    output, page = tmp_path / "global.safetensors", tmp_path / "fusion.html"
    run("fuse", *files, "-o", output)
    inspected = run("inspect", output)
    assert inspected.exit_code == 0
    assert "north, south" in inspected.output
    assert "posteriors of 3 silos, for klfusion add and remove" in inspected.output
    run("fuse", *files, "-o", output, "--forget-silos")
    assert "sent is in this file" not in run("inspect", output).output
    reported = run("report", output, "-o", page)
    assert reported.output == f"report: {page}\n"
    assert page.exists()


# What goes wrong --------------------------------------------------------------------------------


def test_errors_are_one_line_and_code_1(files: list[str], tmp_path: Path) -> None:
    broken = tmp_path / "broken.safetensors"
    broken.write_bytes(Path(files[0]).read_bytes()[:-3])
    other = tmp_path / "other.safetensors"
    normal = kf.families.Normal(1)
    kf.save(other, kf.Posterior(normal, normal.natural([[0.0]], [[[1.0]]]), name="other"))
    output = tmp_path / "out.safetensors"
    for arguments in (
        ["inspect", tmp_path / "missing.safetensors"],
        ["inspect", tmp_path],
        ["inspect", broken],
        ["fuse", files[0], broken, "-o", output],
        ["fuse", files[0], files[0], "-o", output],
        ["fuse", *files[:2], other, "-o", output],
        ["fuse", *files, "-o", output, "--n-components", 1],
        ["fuse", *files, "-o", output, "--penalty", -1],
        ["fuse", *files, "-o", output, "--max-loss", "inf"],
        ["fuse", *files, "-o", tmp_path / "nowhere" / "out.safetensors"],
        ["fuse", *files, "-o", tmp_path],
        ["report", files[0], "-o", tmp_path / "page.html"],
        ["demo", "--quick", "--out", files[0]],
    ):
        result = run(*arguments)
        assert result.exit_code == 1, (arguments, result.output)
        assert result.stderr.startswith("error: ")
        assert "cannot be saved" not in result.stderr  # said before any work
        assert result.stderr.count("\n") == 1
        assert result.stdout == ""
        assert not output.exists()


def test_nothing_is_written_where_the_report_fails(
    files: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> None:
        raise kf.KLFusionError("no summary")

    monkeypatch.setattr("klfusion.report.summarize", fails)
    output, page = tmp_path / "out.safetensors", tmp_path / "page.html"
    result = run("fuse", *files, "-o", output, "--report", page)
    assert (result.exit_code, result.stderr) == (1, "error: no summary\n")
    assert not output.exists()
    assert not page.exists()


def test_errors_speak_the_command_line(files: list[str], tmp_path: Path) -> None:
    result = run("fuse", *files, "-o", tmp_path / "out.safetensors", "--penalty", -1)
    assert result.stderr == "error: expected --penalty to be a number > 0, got -1.0\n"
    for given, shown in {
        "rematch=True or n_components= or n_init=3": "--rematch or --n-components or --n-init 3",
        "keep_silos=False, within_silos=False": "--forget-silos, no --within-silos",
        "silos' own tol, n_init of 'n_init=3'": "silos' own tol, --n-init of 'n_init=3'",
        "x/n_init.safetensors: got Auto(n_init=1)": "x/n_init.safetensors: got Auto(n_init=1)",
        "expected a method, got a penalty": "expected a method, got a penalty",
        "got timeout=-3.0, n_silos=2": "got --timeout -3.0, --n-silos 2",
    }.items():
        assert in_options(given, main.commands.values()) == shown


def test_wrong_usage_is_code_2(files: list[str], tmp_path: Path) -> None:
    for arguments in (
        ["fuse"],
        ["fuse", *files],
        ["fuse", *files, "-o", "x", "--method", "magic"],
        ["fuse", *files, "-o", "x", "--n-init", "0"],
        ["nonsense"],
    ):
        assert run(*arguments).exit_code == 2


def test_inputs_are_never_overwritten(files: list[str], tmp_path: Path) -> None:
    link, page = tmp_path / "link.safetensors", tmp_path / "page.html"
    link.symlink_to(files[0])
    before = Path(files[0]).read_bytes()
    for arguments in (
        ["fuse", *files, "-o", files[0]],
        ["fuse", *files, "-o", link],
        ["fuse", *files, "-o", page, "--report", files[1]],
        ["fuse", *files, "-o", page, "--report", page],
        ["report", files[0], "-o", files[0]],
    ):
        result = run(*arguments)
        assert result.exit_code == 2, arguments
        assert "would be overwritten" in result.stderr
    assert Path(files[0]).read_bytes() == before
    assert not page.exists()


def test_exit_codes_of_the_real_program(files: list[str], tmp_path: Path) -> None:
    assert real("fuse", *files, "-o", tmp_path / "g.safetensors").returncode == 0
    missing = real("inspect", tmp_path / "missing")
    assert (missing.returncode, missing.stdout) == (1, "")
    assert missing.stderr.startswith("error: ")
    assert real("inspect").returncode == 2


def test_a_reader_who_leaves_is_no_error_to_show(files: list[str]) -> None:
    process = subprocess.Popen(
        [*KLFUSION, "inspect", files[0]], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    process.stdout.close()
    assert process.stderr is not None
    assert process.stderr.read() == ""
    process.stderr.close()
    assert process.wait(timeout=60) == 1


# What runs in the background of a shell ignores interrupts, and so do its children.
INTERRUPTIBLE = "import signal\nsignal.signal(signal.SIGINT, signal.default_int_handler)\n"


@pytest.mark.skipif(os.name == "nt", reason="no POSIX signals")
def test_interrupt_is_code_130(tmp_path: Path) -> None:
    # A demo whose first step waits: what an impatient user interrupts.
    script = (
        f"{INTERRUPTIBLE}import time\nfrom klfusion.cli import demo\n"
        "def wait(*args, **kwargs):\n    print('waiting', flush=True)\n    time.sleep(30)\n"
        "demo.run = wait\nfrom klfusion.cli.commands import main\nmain(['demo', '--quick'])\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", script],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=tmp_path,
    )  # fmt: skip
    assert process.stdout is not None
    assert process.stdout.readline() == "waiting\n"
    time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=30)
    assert (process.returncode, errors.strip()) == (130, "interrupted")


@pytest.mark.skipif(os.name == "nt", reason="no POSIX signals")
def test_interrupt_while_libraries_are_imported(files: list[str]) -> None:
    script = (
        f"{INTERRUPTIBLE}import os, signal, sys\n"
        "class Impatient:\n"
        "    def find_spec(self, name, *rest):\n"
        "        if name == 'numpy':\n            os.kill(os.getpid(), signal.SIGINT)\n"
        "sys.meta_path.insert(0, Impatient())\n"
        "from klfusion.cli.commands import main\nmain()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, "inspect", files[0]],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (130, "interrupted\n")


# Help and speed ---------------------------------------------------------------------------------


def test_help_has_examples_and_exit_codes() -> None:
    for command in ([], ["fuse"], ["add"], ["remove"], ["inspect"], ["report"], ["demo"]):
        result = run(*command, "--help")
        assert result.exit_code == 0
        assert "Exit codes:" in result.output
        assert "  klfusion " in result.output
    assert kf.__version__ in run("--version").output


def test_starting_imports_nothing_heavy() -> None:
    code = (
        "import sys, klfusion.cli.commands; "
        "print([m for m in ('numpy', 'scipy', 'sklearn', 'jinja2', 'rich') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_demo(tmp_path: Path) -> None:
    result = run("demo", "--quick", "--out", tmp_path / "demo")
    assert result.exit_code == 0, result.output
    assert "fused from ten files" in result.output
    assert f"Report: {tmp_path / 'demo' / 'fusion.html'}" in result.output
    assert (tmp_path / "demo" / "fusion.html").exists()


@pytest.mark.skipif(os.name == "nt", reason="no POSIX signals")
def test_a_request_to_end_removes_the_scratch_folder(files: list[str], tmp_path: Path) -> None:
    code = (
        "import sys, time\n"
        "from klfusion.out_of_core import files\n"
        "from klfusion.cli.commands import main\n"
        "def wait(*args, **kwargs):\n    print('ready', flush=True)\n    time.sleep(60)\n"
        "files.fuse_batches = wait\n"
        "main(sys.argv[1:])"
    )
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    arguments = ["fuse", *files, "-o", str(tmp_path / "out"), "--memory-limit", "64MB"]
    with subprocess.Popen(
        [sys.executable, "-c", code, *arguments], stdout=subprocess.PIPE, text=True,
        env={**os.environ, "TMPDIR": str(scratch)},
    ) as process:  # fmt: skip
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        assert len(list(scratch.iterdir())) == 1
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=60) == 143
    assert list(scratch.iterdir()) == []


def test_fuse_shows_coefficients(tmp_path: Path) -> None:
    for name, dose in {"a": 0.2, "b": 0.9}.items():
        sent = kf.coefficients(
            [1.0, dose], np.diag([0.1, 0.02]), ["intercept", "dose"], name=name, local=["intercept"]
        )
        kf.save(tmp_path / f"{name}.safetensors", sent)
    paths = sorted(tmp_path.glob("*.safetensors"))
    result = run("fuse", *paths, "-o", tmp_path / "g", "--pooling", "hierarchical")
    assert result.exit_code == 0, result.output
    assert "dose" in result.output
    assert "tau2" in result.output
    assert kf.load(tmp_path / "g").site("b").family.dim == 2
    result = run("inspect", paths[0])
    assert "standard deviation" in result.output
    assert re.search(r"dose\W+0\.2\W+0\.1414", result.output)
    result = run("fuse", *paths, "-o", tmp_path / "h", "--memory-limit", "64MB")
    assert result.exit_code == 0, result.output
    assert kf.load(tmp_path / "h").site("b").family.dim == 2


def test_warnings_are_one_line_without_the_line_of_a_module(tmp_path: Path) -> None:
    pytest.importorskip("opendp")
    rng = np.random.default_rng(0)
    site = kf.privatize(
        GaussianNB(), name="a", data=(rng.normal(size=(50, 1)), rng.integers(2, size=50)),
        epsilon=0.5, delta=1e-5, bounds={"x0": (-500, 500)}, classes=[0, 1],
    )  # fmt: skip
    kf.save(tmp_path / "a.safetensors", site)
    done = real("fuse", tmp_path / "a.safetensors", "-o", tmp_path / "b.safetensors")
    assert done.returncode == 0
    assert done.stderr.startswith("warning: sums with noise say less of 2 of 2 variances")
    assert ".py" not in done.stderr and done.stderr.count("\n") == 1
