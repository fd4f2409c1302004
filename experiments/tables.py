"""Tables of results in a terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.table import Table


def of_rows(rows: Sequence[Mapping[str, Any]], section: tuple[str, Any] | None = None) -> Table:
    """One line per row; a row with the value ``section`` of a column begins a section."""
    table = Table(*rows[0])
    for row in rows:
        if section is not None and row[section[0]] == section[1]:
            table.add_section()
        table.add_row(*(f"{v:.3f}" if isinstance(v, float) else str(v) for v in row.values()))
    return table


def by_name(
    title: str, rows: Mapping[str, Mapping[str, float]], first: str = "", form: str = ".4g"
) -> Table:
    """One line per name; a row may lack columns. ``first`` is the title of the names."""
    columns = list(dict.fromkeys(key for row in rows.values() for key in row))
    table = Table(title=title, title_justify="left")
    table.add_column(first)
    for column in columns:
        table.add_column(column, justify="right")
    for name, row in rows.items():
        table.add_row(name, *(f"{row[c]:{form}}" if c in row else "" for c in columns))
    return table
