"""Links of the documentation to what is no part of the site: files, and lines of code.

``python mkdocs_hooks.py`` writes the lines of code anew, at the foot of the pages that name some.
"""

from __future__ import annotations

import inspect
import re
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


def main() -> None:
    """Write, at the foot of each page, where the code it names is."""
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
