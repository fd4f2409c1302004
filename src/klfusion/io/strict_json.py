"""Strict JSON: canonical when written; when read, its memory is known before any is taken."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
from numpy.typing import NDArray

from klfusion.errors import FileFormatError, KLFusionError

MAX_DEPTH = 64  # of nested lists and mappings
_MAX_DIGITS = 40  # of an integer; a seed of 128 bits has 39
_LONG = b"0" * (_MAX_DIGITS + 1)  # else no integer needs a check
_DIGITS_ALONE = bytes(ord("0" if chr(code).isdecimal() else " ") for code in range(256))

# Bytes that CPython takes, each rounded up as its allocator does.
_STRING, _NOT_ASCII = 64, 16  # beside its characters
_NUMBER = 32
_LIST, _MAPPING = 96, 192  # with the first places
_IN_LIST, _IN_MAPPING = 9, 44  # a further place; a list grows by an eighth, a mapping doubles
_KEY = _STRING + 66  # a new key, and its place among all keys, which may be doubling
MOST_TIMES = 10  # the size of a file that its loading may take in memory
FREE = 2**20  # bytes that the loading of any file may take beside
_PER_BYTE = 64  # no JSON of few lists and mappings takes more; keys of one letter take 37
_BLOCK, _KEYS = 2**14, 2**10  # characters, and keys, looked at together
_SHORT = 16  # bytes of a key, two words
_SECRET = np.array([hash(b"first"), hash(b"second")]) | 1  # so that nobody can make hashes equal
_STRUCTURAL = b'",:[]{}'
_REST = bytes(set(range(256)) - {*_STRUCTURAL})

_CANONICAL = json.JSONEncoder(
    sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
)


def canonical_json(value: Any) -> bytes:
    """Canonical JSON: sorted keys, no spaces, UTF-8, finite numbers."""
    try:
        return _CANONICAL.encode(value).encode()
    except ValueError as error:  # an infinite number, or half a surrogate pair
        raise KLFusionError(f"expected JSON values in Unicode, got {error}") from error


def parse_json(data: bytes, size: int, n_arrays: int) -> Any:
    """Parse strict JSON, part of a file of ``size`` bytes, within the memory allowed for it.

    ``n_arrays`` of these bytes are arrays, whose checks take up to nine times their size later.
    Duplicate keys, NaN, long integers and deep nesting are refused.
    """
    # The marks of a short document would take more time than all else in a file of few numbers.
    short = len(data) <= FREE // _PER_BYTE and data.count(b"[") + data.count(b"{") <= MAX_DEPTH
    marks = None if short else _checked_marks(data, size, n_arrays)
    n_keys, n_given = 0, 0 if marks is None else marks.n_keys

    def counted(mapping: dict[str, Any]) -> dict[str, Any]:
        nonlocal n_keys
        n_keys += len(mapping)
        return mapping

    def made(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        nonlocal n_given
        n_given += len(pairs)
        return counted(dict(pairs))

    hooks: dict[str, Any] = {"object_pairs_hook": made} if short else {"object_hook": counted}
    if _LONG in data.translate(_DIGITS_ALONE):
        hooks["parse_int"] = _short_int
    try:
        value = json.loads(data.decode(), parse_constant=_no_constant, **hooks)
    except (RecursionError, ValueError) as error:  # the latter for bad JSON and bad UTF-8
        raise FileFormatError(f"expected a JSON header, got {error}") from error
    if n_keys < n_given:
        raise FileFormatError("expected a JSON header of unique keys, got a duplicate key")
    return value


def _checked_marks(data: bytes, size: int, n_arrays: int) -> _Marks:
    """Marks of a document that is allowed the memory it takes."""
    marks = _Marks(data)
    text, values = marks.memory()
    most = MOST_TIMES * size + FREE
    if text + values > most or values > most - (MOST_TIMES - 1) * n_arrays:
        allowed = f"expected a JSON header that takes at most {MOST_TIMES} times the file in memory"
        got = f"lists, mappings and words that take {text + values} bytes, for a file of {size}"
        raise FileFormatError(f"{allowed}, got {got}")
    return marks


class _Marks:
    """Strings, and the characters outside of them that separate values, in JSON or not."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        # Without escaped quotes, every quote begins or ends a string.
        self.plain = data.replace(rb"\\", b"").replace(rb"\"", b"")
        marks = np.frombuffer(self.plain.translate(None, _REST), np.uint8)
        quotes = marks == ord('"')
        self.n_strings = -(-int(np.count_nonzero(quotes)) // 2)
        marks = marks[~np.logical_xor.accumulate(quotes) & ~quotes]
        self.n_commas, self.n_keys, self.n_lists, self.n_mappings = (
            int(np.count_nonzero(marks == code)) for code in b",:[{"
        )
        _check_depth(marks)

    def repeated_keys(self) -> tuple[int, int]:
        """Number of keys that occur before, which are made once; and bytes of other strings.

        Keys followed by a space count as new. Sorted hashes take less memory than a set.
        """
        codes = np.frombuffer(self.plain, np.uint8)
        quotes = np.flatnonzero(codes == ord('"'))
        begin, end = quotes[: len(quotes) // 2 * 2].reshape(-1, 2).T
        is_key = codes[np.minimum(end + 1, len(codes) - 1)] == ord(":")
        n_bytes = int((end - begin).sum()) + len(self.data) - len(self.plain)
        begin, end = begin[is_key], end[is_key]
        hashes = np.empty(len(begin), np.int64)
        for at in range(0, len(begin), _KEYS):
            some = slice(at, at + _KEYS)
            hashes[some] = self._hashes(codes, begin[some], end[some])
        new = np.unique(hashes, return_index=True)[1]
        length = end - begin
        return len(begin) - len(new), n_bytes - int(length.sum() - length[new].sum())

    def _hashes(
        self, codes: NDArray[np.uint8], begin: NDArray[np.intp], end: NDArray[np.intp]
    ) -> NDArray[np.int64]:
        """Hashes of some keys; those of short ones are sums of two words times secret numbers."""
        places = begin[:, None] + np.arange(_SHORT)
        found = codes.take(places, mode="clip")
        found[places >= end[:, None]] = 0
        hashes = np.asarray(found.view(np.int64) @ _SECRET)
        for k in np.flatnonzero(end - begin > _SHORT):
            hashes[k] = hash(self.plain[begin[k] : end[k]])
        return hashes

    def memory(self) -> tuple[int, int]:
        """Bytes that the text and its characters take, and its values when parsed, at most."""
        codes = np.frombuffer(self.data, np.uint8)
        widest = int(codes.max(initial=0))
        of_text = 1 if widest < 0xC4 else 2 if widest < 0xF0 else 4  # bytes per character
        n = int(np.count_nonzero(codes & 0xC0 != 0x80))  # bytes that continue none
        wide = b"\\u" in self.plain
        of_values = 4.0 if wide else float(of_text)
        if b"\\" in self.data:  # such strings grow by a quarter, and are copied to be wider
            of_values += 0.25 * of_values + (of_values > 1)
        n_repeated, n_bytes = self.repeated_keys()
        n_strings, n_containers = self.n_strings - self.n_keys, self.n_lists + self.n_mappings
        n_values = self.n_commas + n_containers + 1
        values = (
            of_values * min(n, n_bytes)
            + (_STRING + _NOT_ASCII * (wide or widest >= 0x80)) * max(n_strings, 0)
            + _NUMBER * max(n_values - n_strings - n_containers, 0)
            + _LIST * self.n_lists
            + _IN_LIST * max(n_values - self.n_keys, 0)
            + _MAPPING * self.n_mappings
            + _IN_MAPPING * max(self.n_keys - self.n_mappings, 0)
            + _KEY * (self.n_keys - n_repeated)
        )
        return len(codes) + of_text * n, int(values)


def _check_depth(marks: NDArray[np.uint8]) -> None:
    """In blocks, since sums take more memory than characters."""
    depth = 0
    for begin in range(0, len(marks), _BLOCK):
        part = marks[begin : begin + _BLOCK]
        opened, closed = ((part == a) | (part == b) for a, b in (b"[{", b"]}"))
        inside = depth + np.cumsum(opened, dtype=np.int64) - np.cumsum(closed, dtype=np.int64)
        depth = int(inside[-1])
        if inside.max() > MAX_DEPTH:
            text = f"expected a JSON header nested at most {MAX_DEPTH} deep, got a deeper one"
            raise FileFormatError(text)


def _no_constant(name: str) -> None:
    raise ValueError(f"{name}, which is no JSON number")


def _short_int(digits: str) -> int:
    if len(digits) > _MAX_DIGITS:
        raise ValueError(f"an integer of {len(digits)} digits")
    return int(digits)
