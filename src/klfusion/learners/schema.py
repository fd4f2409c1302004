"""`Schema`: the columns on which sites agree before they fit, so that priors need no data."""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

import numpy as np

from klfusion._utils.arrays import FloatArray
from klfusion._utils.text import brief, few
from klfusion.errors import KLFusionError
from klfusion.io.atomic import opened, write_atomically
from klfusion.learners._cells import array_of, columns_of, levels_of
from klfusion.learners._suggestion import suggested
from klfusion.learners.column import Column

_MOST_BYTES = 2**24  # of a file


@dataclass(frozen=True)
class Schema:
    """Columns, their kinds, categories, units and reference ranges; all sites use the same.

    Parameters
    ----------
    columns : sequence of Column

    Examples
    --------
    >>> import klfusion as kf
    >>> from klfusion.learners import Column
    >>> schema = kf.Schema([Column("age", "continuous", reference=(30, 80), unit="years"),
    ...                     Column("sex", "binary", categories=("f", "m"))])
    >>> schema.names
    ['age', 'sex']
    >>> schema.encoded({"sex": ["m", None]})
    array([[nan,  1.],
           [nan, nan]])
    """

    columns: tuple[Column, ...]

    def __post_init__(self) -> None:
        given: Any = self.columns
        if not isinstance(given, Sequence) or not given:
            raise KLFusionError(f"schema: expected a sequence of columns, got {brief(given)}")
        for column in given:
            if not isinstance(column, Column):
                raise KLFusionError(f"schema: expected columns, got {brief(column)}")
        object.__setattr__(self, "columns", tuple(given))
        two = [own.name for c in given if c.point_mass is not None for own in c.expanded]
        names = [*self.names, *two]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise KLFusionError(f"schema: expected columns of different names, got {few(twice)}")

    def __iter__(self) -> Iterator[Column]:
        return iter(self.columns)

    def __len__(self) -> int:
        return len(self.columns)

    @property
    def names(self) -> list[str]:
        """Of the columns, in order."""
        return [column.name for column in self.columns]

    @cached_property
    def expanded(self) -> Schema:
        """The columns that are fitted: each semicontinuous one is two, whether and how much."""
        return Schema(tuple(own for column in self.columns for own in column.expanded))

    @classmethod
    def suggest(
        cls,
        frame: Any,
        *,
        kinds: Mapping[str, str] | None = None,
        units: Mapping[str, str] | None = None,
    ) -> Schema:
        """A first schema from one site's data, to be checked by a person before it is sent.

        Ranges are rounded percentiles of the data, and categories those that occur. Numbers are
        semicontinuous if one value is far more frequent than any other, and logarithms are fitted
        if a log-Normal distribution has the higher likelihood. Whole numbers from zero with a small
        mean are counts, unless they are few and a distribution of counts does not explain them. A
        frame of pandas may declare categories and their order.

        Left out, with a warning, are columns without values or with one value, identifiers and
        free text (most values occur once), row numbers, dates, and text mixed with numbers. So are
        numbers as text, but for a few whole ones.

        Parameters
        ----------
        frame : data frame, or mapping of names to columns
        kinds : mapping of names to kinds, optional
            Of columns whose numbers say too little, such as codes.
        units : mapping of names to units, optional

        Examples
        --------
        >>> import klfusion as kf
        >>> schema = kf.Schema.suggest({"age": [40.5, 61.2, 70.1], "sick": ["no", "yes", None]})
        >>> [(column.name, column.kind) for column in schema]
        [('age', 'continuous'), ('sick', 'binary')]
        """
        kinds, units, table = dict(kinds or {}), dict(units or {}), columns_of(frame)
        if table is None:
            raise KLFusionError(f"expected a frame or a mapping of columns, got {brief(frame)}")
        for given in (kinds, units):
            if unknown := sorted(set(given) - set(table)):
                raise KLFusionError(f"expected columns of {few(list(table))}, got {few(unknown)}")
        found = {
            name: suggested(name, own, kinds.get(name), units.get(name), levels_of(frame, name))
            for name, own in table.items()
        }
        columns = tuple(own for own in found.values() if isinstance(own, Column))
        left_out = [f"{name!r} ({own})" for name, own in found.items() if isinstance(own, str)]
        if not columns:
            got = ", ".join(left_out) or "none"
            raise KLFusionError(f"expected a column that can be fitted, got {got}")
        if left_out:
            warnings.warn(
                f"left out of the schema: {', '.join(left_out)}. Add a Column where others have "
                "values that vary, or give kinds=",
                stacklevel=2,
            )
        for own in columns:
            point, span = own.point_mass, own.reference
            if point is None or span is None or own.name in kinds:
                continue
            if point < 0 <= span[0]:
                warnings.warn(
                    f"column {own.name!r}: many rows have {point:g}, and the range of the others "
                    "has no negative number: if it says that a cell is missing, empty these cells",
                    stacklevel=2,
                )
        return cls(columns)

    def encoded(self, data: Any) -> FloatArray:
        """Numbers and positions of categories, (n, columns); NaN for missing cells.

        A frame or mapping may lack columns, which the site never measured. An array has all, in
        the order of the schema.
        """
        table = columns_of(data)
        if table is None:
            array = np.asarray(data)
            if array.ndim != 2 or array.shape[1] != len(self):
                expected = f"a frame, or an array with the {len(self)} columns of the schema"
                raise KLFusionError(f"expected {expected}, got {brief(data)}")
            table = dict(zip(self.names, array.T, strict=True))
        if unknown := [name for name in table if name not in self.names]:
            hint = "drop them from the table, or add a Column for each; a name may be misspelt"
            raise KLFusionError(f"columns {few(unknown)}: expected columns of the schema: {hint}")
        lengths = {len(values) for values in table.values()}
        if len(lengths) != 1:
            raise KLFusionError(f"expected columns of one length, got {sorted(lengths)}")
        out = np.full((lengths.pop(), len(self)), np.nan)
        for k, column in enumerate(self.columns):
            if column.name in table:
                out[:, k] = column.encoded(array_of(table[column.name]))
        return out

    def expand(self, values: FloatArray) -> FloatArray:
        """Values of the columns `expanded`, from what `encoded` gives."""
        both = zip(self.columns, values.T, strict=True)
        return np.hstack([column.expand(own) for column, own in both])

    def to_config(self) -> list[dict[str, Any]]:
        """JSON-able description."""
        return [
            {
                key: list(value) if isinstance(value, tuple) else value
                for key, value in asdict(column).items()
                if value is not None and value is not False and value != ()
            }
            for column in self.columns
        ]

    @classmethod
    def from_config(cls, config: Any) -> Schema:
        """The schema that `to_config` described."""
        if not isinstance(config, list) or not all(isinstance(own, Mapping) for own in config):
            raise KLFusionError(f"schema: expected a list of columns, got {brief(config)}")
        columns = []
        for own in config:
            given: Any = {k: tuple(v) if isinstance(v, list) else v for k, v in own.items()}
            try:
                columns.append(Column(**given))
            except TypeError as error:
                raise KLFusionError(f"schema: malformed column {brief(own)}") from error
        return cls(tuple(columns))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a JSON file, for the other sites."""
        text = json.dumps({"schema": self.to_config()}, indent=1, ensure_ascii=False)
        write_atomically(path, [memoryview((text + "\n").encode())])

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Schema:
        """Read the file that `save` wrote."""
        with opened(path) as (stream, size):
            if size > _MOST_BYTES:
                raise KLFusionError(f"expected a schema of at most {_MOST_BYTES} bytes")
            try:
                document = json.loads(stream.read())
                config = document["schema"]
            except (ValueError, KeyError, TypeError, RecursionError) as error:
                raise KLFusionError("expected a schema in JSON") from error
            return cls.from_config(config)
