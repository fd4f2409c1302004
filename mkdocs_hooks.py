"""Links of the documentation to what is no part of the site: files, and lines of code.

``python mkdocs_hooks.py`` writes the lines of code anew, at the foot of the pages that name some,
and the page of numbers.
"""

from __future__ import annotations

import ast
import inspect
import re
from dataclasses import fields
from importlib import import_module
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent
_LINK = re.compile(r"(?<!!)\[([^\]]+)\]\(([^)#:\s]+)(#[^)\s]*)?\)")
_NAME = re.compile(r"\]\[(klfusion\.[\w.]+)\]")
_DEFINITION = re.compile(r"^\[(klfusion\.[\w.]+)\]: (\S+)#L(\d+)\n?", flags=re.MULTILINE)


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Show files as the path they lead to, and let code lead to its place in the reference.

    A reader of the repository can follow both there. A link to what does not exist stays, for
    ``--strict`` to complain about.
    """
    del files
    docs = Path(config["docs_dir"]).resolve()

    def shown(match: re.Match[str]) -> str:
        target = (docs / page.file.src_uri).parent.joinpath(match[2]).resolve()
        if target.is_relative_to(docs) or not target.exists():
            return match[0]
        return f"{match[1]} (`{target.relative_to(docs.parent).as_posix()}`)"

    return _LINK.sub(shown, _DEFINITION.sub("", markdown))


def place(name: str) -> tuple[Path, range]:
    """The file that holds a class or function of klfusion, and its lines there."""
    found, parts = import_module("klfusion"), name.split(".")[1:]
    for part in parts:
        if inspect.ismodule(found) and not hasattr(found, part):
            found = import_module(f"{found.__name__}.{part}")
        else:
            found = getattr(found, part)
    found = inspect.unwrap(found)
    lines, first = inspect.getsourcelines(found)
    # Decorators stand above; the line people look for is the one with the name.
    start = next(i for i, line in enumerate(lines) if re.match(r"\s*(def|class) ", line))
    return Path(str(inspect.getsourcefile(found))).resolve(), range(
        first + start, first + len(lines)
    )


def named(text: str) -> list[str]:
    """What a page names of the code, each once."""
    return sorted(set(_NAME.findall(text)))


def definitions(text: str) -> dict[str, tuple[str, int]]:
    """Where a page says that each name is: file and line."""
    return {name: (file, int(line)) for name, file, line in _DEFINITION.findall(text)}


NUMBERS = ROOT / "docs" / "numbers.md"
# Modules with numbers that the default may use, by the models it uses them for.
_USED = {
    "Every kind of model": (
        "model_size.distances", "model_size.log_f", "model_size.densities",
        "model_size.partitions", "model_size.evidence", "model_size.matchings",
        "model_size.linkage", "model_size.failed_fits", "model_size.linked_rows",
        "model_size.shares", "model_size.probabilities", "merging.agglomeration",
        "methods.auto", "methods.method",
    ),
    "Before components are matched": (
        "model_size.cleaning", "model_size.two_normals", "model_size.silo_variation",
    ),
    "Topics": ("methods.topics",),
    "Networks": ("methods.networks", "merging.neighbours"),
    "More than 1,200 components": (
        "many_silos.linkage", "many_silos.sample", "many_silos.sweep",
    ),
}  # fmt: skip
# Names of numbers that bound work, memory or rounding, or describe a grid; all others may decide.
_BOUNDS = re.compile(
    r"_?(MAX|MOST|BLOCK|BATCH|WIDE|NEVER|STEP|LOW|HIGH|SAME|DIFFERENT|ROUNDS|SWEEPS|"
    r"PASSES|SETTLED|TILTS|TINY|CERTAIN|NEGLIGIBLE|STARTS|POINTS|NOTHING|MARGIN|TOL|ALMOST_NONE|AFTER_MERGE|"
    r"WHEN_LOWEST|NO_MORE|SHARES|NEAREST|FINER_STEPS|NEIGHBOURS|REVISED|TOPIC_STARTS|EM_STEPS|"
    r"POLISHED|TRIES|LEAST_GAIN|LEAST_SHARE|LEAST_DEVIATION|SMOOTHING|OUTCOMES)(_[A-Z_]+)?"
)
_DECIDING = {"OUTCOMES", "NEGLIGIBLE_SHARE"}  # of those that look like bounds


def constants(module: str) -> list[tuple[str, str, str]]:
    """Names, values and comments of the numbers at the head of a module."""
    found = import_module(f"klfusion.{module}")
    source = inspect.getsource(found)
    lines, listed = source.splitlines(), []
    for node in ast.parse(source).body:
        if not isinstance(node, ast.Assign | ast.AnnAssign):
            continue
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        _, _, comment = lines[(node.end_lineno or 1) - 1].partition("# ")
        above = lines[node.lineno - 2].strip()
        comment = comment or (above.removeprefix("# ") if above.startswith("# ") else "")
        for name in (one.id for t in targets for one in ast.walk(t) if isinstance(one, ast.Name)):
            value: Any = getattr(found, name)
            if comment == "" and not isinstance(node.value, ast.Constant):  # computed from others
                continue
            if isinstance(value, int | float):
                listed.append((name, f"{value:,.6g}" if value < 1e6 else f"{value:.2g}", comment))
            elif name.isupper() and hasattr(value, "shape"):
                listed.append((name, f"{value.size} values", comment))
    return listed


def parameters(name: str) -> list[tuple[str, str, str]]:
    """Numbers among the fields of a method of its own, with the text of its docstring."""
    method = getattr(import_module("klfusion"), name)
    text, listed = inspect.getdoc(method) or "", []
    for field in fields(method):
        if field.name in {
            "n_init",
            "max_iter",
            "tol",
            "divergence",
            "topics",
            "outgoing",
            "convolutional",
        }:
            continue
        entry = re.search(rf"^{field.name} : .*\n((?:    .*\n?)+)", text, flags=re.MULTILINE)
        about = " ".join(entry[1].split()) if entry else _NETWORK_FIELDS.get(field.name, "")
        if field.name != "penalty" and field.default is not None:
            listed.append((f"kf.{name}({field.name}=)", str(field.default), about))
    return listed


_NETWORK_FIELDS = {
    "within": "Quantile of the penalties at which two units of one silo would merge.",
    "loss": "Share of the divergence of all units from their average that merges may lose.",
}


def numbers() -> str:
    """The page of numbers on the path of the default."""
    deciding: list[str] = []
    bounds = ["| number | value | unit and reason |", "| --- | --- | --- |"]
    n_deciding = 0
    for models, modules in _USED.items():
        own = {"Every kind of model": parameters("Auto"), "Networks": parameters("Networks")}
        rows = list(own.get(models, []))
        for module in modules:
            for name, value, about in constants(module):
                row = f"`{module}.{name}`", value, about
                if _BOUNDS.fullmatch(name) and name not in _DECIDING:
                    bounds.append(f"| {' | '.join(row)} |")
                else:
                    rows.append(row)
        n_deciding += len(rows)
        deciding += [f"## {models}", "", bounds[0], bounds[1]]
        deciding += [f"| {' | '.join(row)} |" for row in rows] + [""]
    return "\n".join(
        [
            "# Numbers of the default",
            "",
            "`python mkdocs_hooks.py` writes this page from the code. It lists every number that",
            f"the default may use, over all kinds of model. {n_deciding} of them can decide what",
            "is matched. The others bound work, memory or rounding, or describe a grid. Halves",
            "that stand for a majority or for equal odds are not listed.",
            "",
            *deciding,
            "## Bounds of work and rounding, and grids",
            "",
            *bounds,
            "",
        ]
    )


def main() -> None:
    """Write the page of numbers and, at the foot of each page, where the code it names is."""
    NUMBERS.write_text(numbers(), encoding="utf-8")
    for page in sorted((ROOT / "docs").rglob("*.md")):
        text = page.read_text(encoding="utf-8")
        up = "../" * len(page.relative_to(ROOT).parent.parts)
        found = {name: place(name) for name in named(text)}
        foot = [
            f"[{name}]: {up}{file.relative_to(ROOT.resolve()).as_posix()}#L{lines[0]}\n"
            for name, (file, lines) in found.items()
        ]
        if foot:
            body = _DEFINITION.sub("", text).rstrip("\n")
            page.write_text(f"{body}\n\n{''.join(foot)}", encoding="utf-8")


if __name__ == "__main__":
    main()
