"""Prose of Markdown pages and of numpydoc docstrings, without code, tables and headings."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from pathlib import Path

# A sentence ends before the capital letter, quotation, number or code that begins the next one.
_END = re.compile(r"(?<=[.!?])[\"')\]*_]*\s+(?=[\"'(\[*_`]*[A-Z0-9`])")
_ABBREVIATIONS = re.compile(r"\b(?:e\.g|i\.e|cf|eq|vs|et al)\.")
_ITEM = re.compile(r"\s*(?:[-*+]|\d+\.)\s+")
_CODE = "`code`"  # what stands for code in a sentence: one word


def pages(root: Path) -> list[Path]:
    """The documentation; the changelog is history and not part of it."""
    return [root / "README.md", root / "CONTRIBUTING.md", *sorted((root / "docs").rglob("*.md"))]


def of_page(text: str) -> list[str]:
    """Sentences and headings of a page."""
    text = re.sub(r"^(`{3,}|~{3,}).*?^\1\s*$", "\n", text, flags=re.DOTALL | re.MULTILINE)
    text = re.sub(r"<!--.*?-->", "", text, flags=re.DOTALL)
    text = re.sub(r"!\[[^\]]*\]\([^)]*\)", "", text)
    text = re.sub(r"\[([^\]]*)\](?:\([^)]*\)|\[[^\]]*\])", r"\1", text)
    blocks: list[str] = [""]
    for line in text.splitlines():
        own = line.strip()
        if not own or own.startswith(("|", "#", ":::", "<", "--8<--", "!!!")) or _definition(own):
            blocks += [own.lstrip("# ") if own.startswith("#") else "", ""]
        elif line.startswith("    ") and not blocks[-1]:  # code, after a blank line
            continue
        elif _ITEM.match(line):
            blocks.append(_ITEM.sub("", line, count=1))
        else:
            blocks[-1] += f" {own}"
    return _sentences(blocks)


def _definition(line: str) -> bool:
    return re.match(r"\[[^\]]+\]: ", line) is not None


def docstrings(path: Path) -> Iterator[tuple[str, str]]:
    """The names of a module's classes and functions, and their docstrings."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    for node in ast.walk(tree):
        if isinstance(node, kinds) and (text := ast.get_docstring(node)):
            yield getattr(node, "name", "module"), text


def of_docstring(text: str) -> list[str]:
    """Sentences of a docstring; names, types, tables and headings of sections are not prose."""
    lines = inspect.cleandoc(text).splitlines()
    blocks: list[str] = [""]
    section, skipped, indent = False, False, 0
    for line, after in zip(lines, [*lines[1:], ""], strict=True):
        own, previous = line.strip(), indent
        indent = len(line) - len(line.lstrip())
        skipped = own.startswith((">>>", "==")) or (skipped and bool(own))
        if own and set(own) == {"-"}:
            section = True
        elif not own or skipped or (after.strip() and set(after.strip()) == {"-"}):
            blocks.append("")
        elif section and indent == 0:
            blocks.append("" if _is_entry(line, after) else own)
        elif item := _ITEM.match(line):
            blocks.append(line[item.end() :])
            indent = item.end()
        elif indent != previous:  # a definition, or the end of one
            blocks.append(own)
        else:
            blocks[-1] += f" {own}"
    return _sentences(blocks)


def _is_entry(line: str, after: str) -> bool:
    """Whether a line names a parameter or a type: a description is indented below it, or none."""
    return after.startswith("    ") or " : " in line or not line.rstrip().endswith((".", ":"))


def _sentences(blocks: list[str]) -> list[str]:
    found = []
    for block in blocks:
        text = re.sub(r"``.+?``|`[^`]+`", _CODE, block)
        text = _ABBREVIATIONS.sub("for", text).replace("**", "")
        text = re.sub(r"\s+", " ", text).strip()
        found += [one for one in _END.split(text) if one]
    return found


def n_words(sentence: str) -> int:
    """Words and numbers of a sentence; code is one word."""
    return len(re.findall(r"[^\W_][\w'’.,/^-]*", sentence))
