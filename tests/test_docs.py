"""Every Python block of the documentation runs, from top to bottom; links lead somewhere."""

from __future__ import annotations

import argparse
import re
import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner

import mkdocs_hooks
from klfusion.cli.commands import main
from klfusion.errors import MissingDependencyError
from klfusion.methods import METHODS
from klfusion.objective.divergences import DIVERGENCES
from tests.helpers.loops import for_each

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
# The gallery's tests run its scripts and compare its pages with them.
PAGES_TO_RUN = [page for page in PAGES if page.parent.name != "gallery"]

SLOW = {"networks.md", "mcmc.md"}  # trains networks, runs NUTS
WITH_COMMANDS = [ROOT / "README.md", ROOT / "docs/tutorials/mixtures.md"]
WITH_COMMANDS.append(ROOT / "docs/tutorials/federation.md")


@pytest.fixture
def own_registries():
    """What a page registers is gone after it."""
    before = [(registry, dict(registry)) for registry in (DIVERGENCES, METHODS)]
    yield
    for registry, entries in before:
        registry.clear()
        registry.update(entries)


@pytest.mark.usefixtures("own_registries")
@pytest.mark.filterwarnings("default")  # of the libraries the examples use
@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, marks=pytest.mark.slow) if page.name in SLOW else page
        for page in PAGES_TO_RUN
        if page not in WITH_COMMANDS and "```python\n" in page.read_text(encoding="utf-8")
    ],
    ids=lambda p: p.name,
)
def test_code_runs(page, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    with_output = r"```python\n(.*?)```(?:\n+```text\n(.*?)```)?"
    blocks = re.findall(with_output, page.read_text(encoding="utf-8"), flags=re.DOTALL)
    names = {"__name__": f"docs_{page.stem}"}
    for block, output in blocks:
        capsys.readouterr()
        try:
            exec(compile(block, str(page), "exec", dont_inherit=True), names)
        except ModuleNotFoundError as error:
            if (error.name or "").partition(".")[0] in {"klfusion", "numpy", "sklearn"}:
                raise
            pytest.skip(f"{page.name} needs {error.name}, which is not installed")
        except MissingDependencyError as error:  # the same, in our words
            pytest.skip(f"{page.name}: {error}")
        if output:  # fractions may differ with the version of a library
            printed = capsys.readouterr().out
            assert re.sub(r"\d+\.\d+", "#", printed) == re.sub(r"\d+\.\d+", "#", output)


@pytest.mark.usefixtures("own_registries")
@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("page", WITH_COMMANDS, ids=lambda p: p.name)
def test_commands_run_on_what_the_code_wrote(page, tmp_path, monkeypatch, capsys):
    test_code_runs(page, tmp_path, monkeypatch, capsys)
    blocks = re.findall(r"```bash\n(.*?)```", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    for line in "\n".join(blocks).splitlines():
        words = shlex.split(line, comments=True)
        if words[:1] == ["klfusion"]:
            found = [
                name for word in words[1:] for name in sorted(map(str, Path().glob(word))) or [word]
            ]
            result = CliRunner().invoke(main, found)
            if "pip install" in result.output:
                pytest.skip(f"{page.name}: {result.output}")
            assert result.exit_code == 0, (line, result.output)


@for_each("page", PAGES)
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text(encoding="utf-8")):
        if "://" not in target:
            assert (page.parent / target).exists(), target


@for_each("page", PAGES)
def test_names_of_code_lead_to_its_lines(page):
    text = page.read_text(encoding="utf-8")
    where = mkdocs_hooks.definitions(text)
    assert sorted(where) == mkdocs_hooks.named(text), "run python mkdocs_hooks.py"
    for name, (file, line) in where.items():
        real, lines = mkdocs_hooks.place(name)
        assert (page.parent / file).resolve() == real, name
        assert line in lines, f"{name} begins at line {lines[0]}: run python mkdocs_hooks.py"


def test_the_page_of_numbers_is_current():
    written = mkdocs_hooks.NUMBERS.read_text(encoding="utf-8")
    assert written == mkdocs_hooks.numbers(), "run python mkdocs_hooks.py"


def test_at_most_eight_numbers_decide():
    count = re.search(r"(\d+) of them can decide", mkdocs_hooks.numbers())
    assert count is not None and int(count[1]) <= 8


def test_every_number_has_a_unit_or_a_reason():
    rows = re.findall(r"^\| (\S+) \| (.*) \| (.*) \|$", mkdocs_hooks.numbers(), flags=re.MULTILINE)
    assert len(rows) > 20
    for name, _, reason in rows:
        assert reason, name


@for_each("page", PAGES)
def test_pictures_name_their_command(page):
    text = page.read_text(encoding="utf-8")
    if "![" in text:
        assert re.search(r"python -m (experiments|benchmarks) \w+|make (pictures|gallery)", text)


@for_each("page", PAGES)
def test_commands_exist_with_their_options(page):
    text = page.read_text(encoding="utf-8")
    blocks = re.findall(r"```bash\n(.*?)```", text, flags=re.DOTALL)
    inline = re.findall(r"`((?:klfusion [a-z]+ |make |python -m )[^`\n]*)`", text)
    for line in [*"\n".join(blocks).splitlines(), *inline]:
        words = shlex.split(line, comments=True)
        if any(word in {"...", "|"} for word in words):  # shortened
            continue
        if words[:1] == ["klfusion"]:
            command, words = main.commands[words[1]], words[1:]
            if hasattr(command, "commands"):  # a group, as in klfusion site fit
                command = command.commands[words[1]]
            known = {name for p in command.params for name in (*p.opts, *p.secondary_opts)}
            assert {word for word in words[2:] if word.startswith("-")} <= known, line
        elif words[:1] == ["make"]:
            assert re.search(rf"^{words[1]}:", (ROOT / "Makefile").read_text(), re.MULTILINE), line
        elif words[:3] == ["python", "-m", "experiments"]:
            _check_experiment(*words[3:])
        elif words[:3] == ["python", "-m", "benchmarks"]:
            assert (ROOT / "benchmarks" / f"{words[3]}.py").exists() or words[3] == "all", line


def _check_experiment(name, *arguments):
    pytest.importorskip("matplotlib", reason="the experiments need pip install 'klfusion[plot]'")
    from experiments.__main__ import EXPERIMENTS

    parser = argparse.ArgumentParser(exit_on_error=False)
    parser.add_argument("--out")
    EXPERIMENTS[name].add_arguments(parser)
    assert parser.parse_known_args(arguments)[1] == []


def test_readme_opens_with_the_two_commands():
    top = "\n".join((ROOT / "README.md").read_text(encoding="utf-8").splitlines()[:8])
    assert "make demo" in top
    assert "make test" in top
