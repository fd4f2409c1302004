"""The safetensors container: a length, a JSON header, the bytes of the arrays.

Every claim of a header is checked before memory is allocated.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from klfusion.errors import FileFormatError, KLFusionError
from klfusion.io.strict_json import canonical_json, parse_json

MAX_HEADER_BYTES = 16 * 2**20
MAX_AXES = 32  # limit of numpy 1
MAX_ARRAYS = 4096  # each is checked, read and hashed by itself, which takes 20 microseconds
_METADATA = "__metadata__"
_DTYPES = {"F64": np.dtype("<f8"), "I64": np.dtype("<i8")}


@dataclass(frozen=True)
class Entry:
    """One array: dtype, shape, and the range of its bytes relative to the end of the header."""

    dtype: str
    shape: tuple[int, ...]
    begin: int = 0
    end: int = 0

    def as_json(self) -> dict[str, Any]:
        """Dtype and shape."""
        return {"dtype": self.dtype, "shape": [*self.shape]}


@dataclass(frozen=True)
class Header:
    """A checked header; ``start`` is the offset of the arrays in the file."""

    metadata: dict[str, str]
    entries: dict[str, Entry]
    start: int


def read_header(stream: BinaryIO, size: int) -> Header:
    """Read the header of a file of ``size`` bytes and check its claims against the size."""
    if size < 8:
        raise FileFormatError(f"expected a safetensors file, got only {size} bytes")
    length = int.from_bytes(_exactly(stream, 8, "header length"), "little")
    if length > MAX_HEADER_BYTES:
        raise FileFormatError(
            f"expected a safetensors file with a header of at most {MAX_HEADER_BYTES} bytes, "
            f"got {length}: another kind of file, or a damaged one"
        )
    if length > size - 8:
        raise FileFormatError(f"expected a header of {length} bytes, got {size - 8}: cut short")
    text = _exactly(stream, length, "header")
    if not text.startswith(b"{"):
        raise FileFormatError(f"expected a JSON object as header, got {text[:16]!r}")
    raw = parse_json(text, size, size - 8 - length)
    metadata = raw.pop(_METADATA, {})
    if not isinstance(metadata, dict) or not all(isinstance(v, str) for v in metadata.values()):
        raise FileFormatError(f"expected {_METADATA} to map strings to strings")
    _check_number(raw)
    entries = {name: _entry(name, value) for name, value in raw.items()}
    _check_offsets(entries, size - 8 - length)
    return Header(metadata, entries, start=8 + length)


def _check_number(arrays: Mapping[str, Any]) -> None:
    if len(arrays) > MAX_ARRAYS:
        raise FileFormatError(f"expected at most {MAX_ARRAYS} arrays, got {len(arrays)}")


def _entry(name: str, raw: Any) -> Entry:
    """Check the header's entry of one array."""
    if not isinstance(raw, dict) or set(raw) != {"dtype", "shape", "data_offsets"}:
        raise FileFormatError(f"array {name!r}: expected dtype, shape and data_offsets")
    dtype, shape, offsets = raw["dtype"], raw["shape"], raw["data_offsets"]
    if not isinstance(dtype, str) or not _are_sizes(shape) or len(shape) > MAX_AXES:
        raise FileFormatError(f"array {name!r}: expected a dtype and a shape of integers >= 0")
    if not _are_sizes(offsets) or len(offsets) != 2 or offsets[0] > offsets[1]:
        raise FileFormatError(f"array {name!r}: expected two rising data_offsets")
    entry = Entry(dtype, tuple(shape), *offsets)
    # Empty axes count as 1: numpy limits the product of the others even for empty arrays.
    if math.prod(max(1, n) for n in shape) >= 2**59:
        raise FileFormatError(f"array {name!r}: expected fewer than 2**59 numbers, got {shape}")
    if dtype in _DTYPES and 8 * math.prod(shape) != entry.end - entry.begin:
        raise FileFormatError(
            f"array {name!r}: expected {8 * math.prod(shape)} bytes for {dtype} of shape "
            f"{entry.shape}, got {entry.end - entry.begin}"
        )
    return entry


def _are_sizes(values: Any) -> bool:
    return isinstance(values, list) and all(type(n) is int and n >= 0 for n in values)


def _check_offsets(entries: Mapping[str, Entry], available: int) -> None:
    """Arrays must cover the bytes after the header without hole, overlap or rest."""
    end = 0
    for name, entry in sorted(entries.items(), key=lambda item: (item[1].begin, item[1].end)):
        if entry.begin != end:
            raise FileFormatError(
                f"array {name!r}: expected its bytes to begin at {end}, got {entry.begin}: "
                f"{'a hole' if entry.begin > end else 'an overlap'}"
            )
        end = entry.end
    if end != available:
        raise FileFormatError(
            f"expected {end} bytes of arrays, got {available}: "
            f"{'cut short' if available < end else 'something was appended'}"
        )


def read_array(stream: BinaryIO, header: Header, name: str) -> NDArray[Any]:
    """Read one float64 or int64 array; the result is read-only."""
    entry = header.entries[name]
    dtype = _DTYPES[entry.dtype]
    raw = np.empty(entry.end - entry.begin, dtype=np.uint8)
    stream.seek(header.start + entry.begin)
    got = stream.readinto(raw.data)  # type: ignore[attr-defined]
    if got != len(raw):
        raise FileFormatError(f"array {name!r}: expected {len(raw)} bytes, got {got}: cut short")
    array = raw.view(dtype).reshape(entry.shape).astype(dtype.newbyteorder("="), copy=False)
    array.flags.writeable = False
    return array


def _exactly(stream: BinaryIO, length: int, what: str) -> bytes:
    data = stream.read(length)
    if len(data) != length:
        raise FileFormatError(f"expected {length} bytes of {what}, got {len(data)}: cut short")
    return data


def entry_of(array: NDArray[Any]) -> Entry:
    """Dtype and shape in a file of a float64 or int64 array."""
    return Entry({"f": "F64", "i": "I64"}[array.dtype.kind], array.shape)


def array_bytes(array: NDArray[Any]) -> memoryview:
    """Little-endian bytes of a float64 or int64 array, copied only if necessary."""
    flat = np.ascontiguousarray(array, dtype=_DTYPES[entry_of(array).dtype]).reshape(-1)
    return flat.view(np.uint8).data


def encode(metadata: Mapping[str, str], arrays: Mapping[str, NDArray[Any]]) -> list[memoryview]:
    """The parts of a file in order; arrays are sorted by name."""
    _check_number(arrays)
    chunks = {name: array_bytes(arrays[name]) for name in sorted(arrays)}
    header: dict[str, Any] = {_METADATA: dict(metadata)}
    end = 0
    for name, chunk in chunks.items():
        begin, end = end, end + len(chunk)
        header[name] = entry_of(arrays[name]).as_json() | {"data_offsets": [begin, end]}
    text = canonical_json(header)
    text += b" " * (-len(text) % 8)  # aligns the arrays in a memory-mapped file
    if len(text) > MAX_HEADER_BYTES:
        raise KLFusionError(
            f"expected names and provenance of at most {MAX_HEADER_BYTES} bytes, got {len(text)}"
        )
    return [memoryview(len(text).to_bytes(8, "little") + text), *chunks.values()]
