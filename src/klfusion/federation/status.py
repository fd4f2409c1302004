"""The status page of a round over a folder: one static HTML file that loads nothing."""

from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from klfusion._utils.text import printable
from klfusion.federation.server import Server
from klfusion.io.atomic import write_atomically

STATUS = "status.html"
_REFRESH = 10  # seconds between two loads of the page by a browser
_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{title}</title>
<meta name="viewport" content="width=device-width">{refresh}
<style>body{{font:16px/1.5 sans-serif;max-width:60em;margin:2em auto;padding:0 1em}}
td,th{{text-align:left;padding:.2em 1em .2em 0;border-bottom:1px solid #ccc}}
code{{font-size:.85em}}</style></head><body>
<h1>{title}</h1><p>{state}</p>
<h2>Accepted messages</h2><table><tr><th>silo</th><th>request</th><th>received (UTC)</th>
<th>bytes</th><th>SHA-256</th></tr>{rows}</table>
<h2>Set aside</h2><ul>{left_out}</ul>
<h2>To look at</h2><ul>{findings}</ul></body></html>
"""


def write_status(folder: Path, server: Server, asked: Mapping[str, Any], *, released: bool) -> None:
    """Write ``status.html``: who has sent, what was set aside and why, what is waited for."""
    sent, expected = len(server.usable(asked["request"])), server.round.expected
    state = f"Request <b>{_text(asked['request'])}</b>: {sent} of {expected} silos have sent"
    state += " a message that can be used."
    if released:
        state = f"Ended: {_text(server.fusion)}. The result is in <code>fused.safetensors</code>."
    keys = ("silo", "request", "received", "bytes")
    rows = "".join(
        "<tr>" + "".join(f"<td>{_text(line[key])}</td>" for key in keys)
        + f"<td><code>{_text(line['sha256'][:16])}</code></td></tr>"
        for line in server.accepted()
    )  # fmt: skip
    absent = sorted(set(server.round.silos or ()) - set(server.posteriors["fit"]))
    notes = [*server.left_out, *(f"silo {name!r}: nothing yet" for name in absent if not released)]
    page = _PAGE.format(
        title=_text(f"Round {server.round.name}"),
        refresh="" if released else f'<meta http-equiv="refresh" content="{_REFRESH}">',
        state=state, rows=rows,
        left_out=_list(notes), findings=_list(server.findings),
    )  # fmt: skip
    write_atomically(folder / STATUS, [memoryview(page.encode())], follow=False)


def _list(texts: Sequence[str]) -> str:
    return "".join(f"<li>{_text(text)}</li>" for text in texts) or "<li>nothing</li>"


def _text(value: object) -> str:
    """Text of others for a page: no markup, and no control characters."""
    return escape(printable(str(value)))
