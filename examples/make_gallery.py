"""Run the scripts of the gallery and write a page of the documentation for each.

``python examples/make_gallery.py`` writes ``docs/gallery``: text, picture, output and code of each
script, and an index. The tests run the scripts and compare the pages.
"""

from __future__ import annotations

import ast
import io
import runpy
import tempfile
from contextlib import chdir, redirect_stdout
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from PIL import Image

ROOT = Path(__file__).parent.parent
SCRIPTS = ROOT / "examples" / "gallery"
PAGES = ROOT / "docs" / "gallery"
NAMES = (  # in the order of the index
    "hospitals",
    "phenotypes",
    "regressions",
    "private",
    "draws",
    "one_class",
    "skew",
    "overfitted",
    "topics",
    "hmm",
    "network",
    "add_remove",
    "contributions",
    "predictive",
    "hostile",
    "files",
    "federation",
    "many_silos",
    "rounds",
    "figure7",
)
_COLOURS = 128  # per picture; its file then has about a third of the size
_COLUMNS = 2  # of the index


def run(name: str, folder: Path) -> str:
    """Run a script in a folder, where it writes its picture; returns what it printed."""
    with chdir(folder), redirect_stdout(io.StringIO()) as printed:
        runpy.run_path(str(SCRIPTS / f"{name}.py"), run_name="__main__")
    plt.close("all")
    return printed.getvalue()


def parts(name: str) -> tuple[str, str, str]:
    """Title, text and code of a script: its docstring's first line, the other lines, the rest."""
    source = (SCRIPTS / f"{name}.py").read_text(encoding="utf-8")
    tree = ast.parse(source)
    title, _, text = (ast.get_docstring(tree) or "").partition("\n\n")
    code = "\n".join(source.splitlines()[tree.body[0].end_lineno or 0 :])
    return title.removesuffix("."), text, code.strip()


def page(name: str, printed: str) -> str:
    """The page of a script in Markdown."""
    title, text, code = parts(name)
    return f"""# {title}

{text}

![{title}]({name}.png)

```text
{printed.rstrip()}
```

[The script](../../examples/gallery/{name}.py); `make gallery` runs it and writes this page.

```python
{code}
```
"""


def index() -> str:
    """The page that shows all pictures."""
    cells = [f"[![{title}]({n}.png)<br>{title}]({n}.md)" for n in NAMES for title, *_ in [parts(n)]]
    rows = [cells[k : k + _COLUMNS] for k in range(0, len(cells), _COLUMNS)]
    return "\n".join(
        [
            "# Gallery\n",
            "Short scripts to copy, each with its picture and its output (`make gallery`).\n",
            "| " * _COLUMNS + "|",
            "| --- " * _COLUMNS + "|",
            *(f"| {' | '.join(row)} |" for row in rows),
            "",
        ]
    )


def main() -> None:
    """Write all pages and pictures."""
    PAGES.mkdir(exist_ok=True)
    for name in NAMES:
        with tempfile.TemporaryDirectory() as folder:
            text = page(name, run(name, Path(folder)))
            picture = Image.open(Path(folder) / f"{name}.png").convert("RGB")
        picture.quantize(_COLOURS).save(PAGES / f"{name}.png", optimize=True)
        (PAGES / f"{name}.md").write_text(text, encoding="utf-8")
    (PAGES / "index.md").write_text(index(), encoding="utf-8")


if __name__ == "__main__":
    main()
