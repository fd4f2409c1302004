"""Links of the documentation to files of the repository that are no part of the site."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

_LINK = re.compile(r"(?<!!)\[([^\]]+)\]\(([^)#:\s]+)(#[^)\s]*)?\)")


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Show them as the path they lead to: a reader of the repository can follow them there.

    A link to what does not exist stays, for ``--strict`` to complain about.
    """
    del files
    docs = Path(config["docs_dir"]).resolve()

    def shown(match: re.Match[str]) -> str:
        target = (docs / page.file.src_uri).parent.joinpath(match[2]).resolve()
        if target.is_relative_to(docs) or not target.exists():
            return match[0]
        return f"{match[1]} (`{target.relative_to(docs.parent).as_posix()}`)"

    return _LINK.sub(shown, markdown)
