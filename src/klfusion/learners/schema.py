"""`Schema`: the columns on which sites agree before they fit, so that priors need no data."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from klfusion._utils.arrays import FloatArray
from klfusion._utils.text import brief, few
from klfusion.errors import KLFusionError
from klfusion.io.atomic import opened, write_atomically
from klfusion.learners._cells import Category, array_of, columns_of, is_missing, numbers, plain

CONTINUOUS, COUNTS = "continuous", "counts"
BINARY, CATEGORICAL, ORDERED = "binary", "categorical", "ordered"
KINDS = (CONTINUOUS, BINARY, CATEGORICAL, COUNTS, ORDERED)
_NUMERIC = (CONTINUOUS, COUNTS)

# What a suggestion takes for codes, and for counts; a person decides.
_MOST_CODES = 10  # distinct whole numbers
_LARGEST_MEAN_COUNT = 20.0
_CENTRAL = (2.5, 97.5)  # percentiles: a reference range holds 95 % by convention
_DIGITS = 2  # of a suggested range, which is to say little about any patient
_MOST_BYTES = 2**24  # of a file


@dataclass(frozen=True)
class Column:
    """One column of a `Schema`.

    Parameters
    ----------
    name : str
    kind : {"continuous", "binary", "categorical", "counts", "ordered"}
    reference : (low, high), optional
        Of numbers: the range that holds most values. Priors have its centre and its width.
    categories : sequence, optional
        The values of a binary, categorical or ordered column; of the last two or more, in order.
    unit : str, optional
    block : str, optional
        Continuous columns of one block have a full covariance within a component. A row counts in
        a block where all cells of it are measured.

    Examples
    --------
    >>> import klfusion as kf
    >>> kf.learners.Column("pressure", "continuous", reference=(90, 140), unit="mmHg").scale
    12.755102040816327
    """

    name: str
    kind: str
    reference: tuple[float, float] | None = None
    categories: tuple[Category, ...] = ()
    unit: str | None = None
    block: str | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name:
            raise KLFusionError(f"expected the name of a column as text, got {brief(self.name)}")
        where = f"column {self.name!r}"
        if self.kind not in KINDS:
            got = f"got {brief(self.kind)}"
            raise KLFusionError(f"{where}: expected a kind of {', '.join(KINDS)}, {got}")
        if self.unit is not None and not isinstance(self.unit, str):
            raise KLFusionError(f"{where}: expected the unit as text, got {brief(self.unit)}")
        if self.block is not None and (self.kind != CONTINUOUS or not isinstance(self.block, str)):
            expected = "expected the name of a block of continuous columns"
            raise KLFusionError(f"{where}: {expected}, got {brief(self.block)}")
        if self.is_numeric:
            object.__setattr__(self, "reference", _range(self.reference, where))
            if self.categories:
                raise KLFusionError(f"{where}: expected no categories of a {self.kind} column")
            return
        categories = tuple(map(plain, self.categories))
        least = "two" if self.kind == BINARY else "two or more"
        unique = len(set(categories)) == len(categories)
        if len(categories) < 2 or not unique or (self.kind == BINARY and len(categories) > 2):
            got = f"got {brief(list(categories))}"
            raise KLFusionError(f"{where}: expected {least} different categories, {got}")
        object.__setattr__(self, "categories", categories)

    @property
    def is_numeric(self) -> bool:
        """Whether its values are numbers, not categories."""
        return self.kind in _NUMERIC

    @property
    def centre(self) -> float:
        """The middle of the reference range."""
        assert self.reference is not None
        return 0.5 * (self.reference[0] + self.reference[1])

    @property
    def scale(self) -> float:
        """The standard deviation of a Normal with 95 % of it in the reference range."""
        assert self.reference is not None
        return (self.reference[1] - self.reference[0]) / (2.0 * 1.96)

    @property
    def label(self) -> str:
        """The name with its unit."""
        return self.name if self.unit is None else f"{self.name} ({self.unit})"

    def encoded(self, values: NDArray[Any]) -> FloatArray:
        """Numbers, or positions of categories, (n,); NaN where a value is missing."""
        where = f"column {self.name!r}"
        if self.is_numeric:
            out = numbers(values, where)
            bad = np.isinf(out)
            if self.kind == COUNTS:
                with np.errstate(invalid="ignore"):
                    bad |= (out < 0) | (out != np.rint(out)) & ~np.isnan(out)
            if bad.any():
                row = int(np.flatnonzero(bad)[0])
                expected = "whole numbers >= 0" if self.kind == COUNTS else "finite numbers"
                raise KLFusionError(f"{where}, row {row}: expected {expected}, got {out[row]:g}")
            return out
        place = {category: float(k) for k, category in enumerate(self.categories)}
        out = np.full(len(values), np.nan)
        for row, value in enumerate(values.tolist()):
            if not is_missing(value):
                try:
                    out[row] = place[value]
                except (KeyError, TypeError):
                    known = few(self.categories)
                    expected = f"expected one of {known}, as in the schema"
                    message = f"{where}, row {row}: {expected}, got {brief(value)}"
                    raise KLFusionError(message) from None
        return out

    def decoded(self, values: FloatArray) -> NDArray[Any]:
        """Values of the column from what `encoded` gives; NaN stays."""
        if self.is_numeric:
            return values
        table = np.array([*self.categories, np.nan], dtype=object)
        return np.asarray(table[np.where(np.isnan(values), len(table) - 1, values).astype(int)])


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
        twice = [name for name in self.names if self.names.count(name) > 1]
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

    @classmethod
    def suggest(
        cls,
        frame: Any,
        *,
        kinds: Mapping[str, str] | None = None,
        units: Mapping[str, str] | None = None,
    ) -> Schema:
        """A first schema from one site's data, to be checked by a person before it is sent.

        Ranges are rounded percentiles of the data, and categories those that occur.

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
        return cls(
            tuple(
                _suggested(name, values, kinds.get(name), units.get(name))
                for name, values in table.items()
            )
        )

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
            raise KLFusionError(f"columns {few(unknown)}: expected columns of the schema")
        lengths = {len(values) for values in table.values()}
        if len(lengths) != 1:
            raise KLFusionError(f"expected columns of one length, got {sorted(lengths)}")
        out = np.full((lengths.pop(), len(self)), np.nan)
        for k, column in enumerate(self.columns):
            if column.name in table:
                out[:, k] = column.encoded(array_of(table[column.name]))
        return out

    def to_config(self) -> list[dict[str, Any]]:
        """JSON-able description."""
        return [
            {
                key: list(value) if isinstance(value, tuple) else value
                for key, value in asdict(column).items()
                if value not in (None, ())
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


def _range(given: Any, where: str) -> tuple[float, float]:
    try:
        low, high = (float(value) for value in given)
    except (TypeError, ValueError):
        low, high = math.nan, math.nan
    if not (math.isfinite(low) and math.isfinite(high) and low < high):
        got = brief(given)
        raise KLFusionError(f"{where}: expected a reference range (low, high), got {got}")
    return low, high


def _suggested(name: str, values: NDArray[Any], kind: str | None, unit: str | None) -> Column:
    """A column from values of it."""
    present = [v for v in values.tolist() if not is_missing(v)]
    where = f"column {name!r}"
    if not present:
        raise KLFusionError(f"{where}: expected values, got none: leave it out, or add it yourself")
    distinct = sorted(set(map(plain, present)), key=lambda v: (isinstance(v, str), v))
    numeric = not any(isinstance(v, str | bool) for v in distinct)
    if len(distinct) == 1:
        raise KLFusionError(f"{where}: expected values that vary, got {distinct[0]!r} alone")
    kind = _kind(present, distinct) if kind is None and numeric else kind
    if kind is None:
        kind = BINARY if len(distinct) == 2 else CATEGORICAL
    if kind not in _NUMERIC:
        return Column(name, kind, categories=tuple(distinct), unit=unit)
    low, high = np.percentile(numbers(np.array(present, dtype=object), where), _CENTRAL)
    step = 10.0 ** (math.floor(math.log10(max(high - low, 1e-300))) - _DIGITS + 1)
    reference = (math.floor(low / step) * step, math.ceil(high / step) * step)
    digits = max(0, _DIGITS - math.floor(math.log10(reference[1] - reference[0])))
    return Column(name, kind, tuple(round(end, digits) for end in reference), unit=unit)


def _kind(present: Sequence[Any], distinct: Sequence[Any]) -> str:
    """The kind of a column of numbers."""
    if len(distinct) == 2:
        return BINARY
    whole = all(float(v).is_integer() for v in distinct)
    if whole and len(distinct) <= _MOST_CODES:
        return CATEGORICAL
    if whole and distinct[0] == 0 and float(np.mean(present)) < _LARGEST_MEAN_COUNT:
        return COUNTS
    return CONTINUOUS
