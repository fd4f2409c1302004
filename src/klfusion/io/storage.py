"""Posteriors and fusions as files and messages: numbers and text, never code.

Everything but arrays is a JSON document with a SHA-256, which detects damage, not forgery.
"""

import gc
import hashlib
import io
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, BinaryIO

from numpy.typing import NDArray

from klfusion._utils.checks import check_integer
from klfusion.errors import FileFormatError, KLFusionError
from klfusion.fusion.result import Fusion
from klfusion.io import atomic as _files
from klfusion.io import container
from klfusion.io import document as _document
from klfusion.io import parts as _parts
from klfusion.io.strict_json import canonical_json
from klfusion.posteriors.posterior import Posterior

MAX_BYTES = 4 * 2**30
_KEY = "klfusion"  # of the document, in the container's metadata


def save(path: str | os.PathLike[str], obj: Posterior | Fusion) -> None:
    """Write a posterior or a fusion to a file.

    The file is replaced atomically, or stays unchanged. Equal objects give equal bytes.

    Parameters
    ----------
    path : str or path
    obj : Posterior or Fusion
        Its provenance and structure must consist of plain JSON values.

    Examples
    --------
    >>> import tempfile, klfusion as kf
    >>> rates = kf.families.Gamma()
    >>> site = kf.Posterior(rates, rates.natural(shape=[3, 40], rate=[10, 10]), name="site-a")
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     kf.save(f"{folder}/site-a.safetensors", site)
    ...     kf.load(f"{folder}/site-a.safetensors")
    Posterior('site-a', 2 components, Gamma(dim=1))
    """
    if isinstance(obj, str | os.PathLike):
        raise KLFusionError(
            f"save: expected a path and then a Posterior or a Fusion, got {obj!r} as the second:"
            ' kf.save("site-a.safetensors", posterior)'
        )
    _files.write_atomically(path, _encode(obj))


def load(path: str | os.PathLike[str], *, max_bytes: int = MAX_BYTES) -> Posterior | Fusion:
    """Read a file of `save`, bit for bit.

    Nothing in a file is executed. Its claims are checked before memory is allocated.

    Parameters
    ----------
    path : str or path
    max_bytes : int
        Refuse larger files; default 4 GiB.

    Returns
    -------
    Posterior or Fusion
        With read-only arrays.

    Raises
    ------
    FileFormatError
        The file is missing, damaged, of a newer version, or of another format.

    Examples
    --------
    >>> import klfusion as kf
    >>> kf.load("nowhere.safetensors")
    Traceback (most recent call last):
    klfusion.errors.FileFormatError: nowhere.safetensors: expected a klfusion file, got none ...
    """
    with _files.opened(path) as (stream, size), _without_collections():
        return _decode(stream, size, max_bytes)


def read_header(path: str | os.PathLike[str]) -> dict[str, Any]:
    """The document of a file, with dtype and shape per array; all is checked but the hash."""
    with _files.opened(path) as (stream, size):
        header, _, found = _read_document(stream, size)
        document = _document.check(found, header.entries, size).document
    return {**document, "arrays": {k: entry.as_json() for k, entry in header.entries.items()}}


def dumps(obj: Posterior | Fusion) -> bytes:
    """Encode an object as the bytes of a file, for a message."""
    return b"".join(_encode(obj))


def loads(
    data: bytes, *, source: str = "message", max_bytes: int = MAX_BYTES
) -> Posterior | Fusion:
    """Decode the bytes of `dumps` with all the checks of `load`; errors name the ``source``."""
    with _files.one_error(source), _without_collections():
        return _decode(io.BytesIO(data), len(data), max_bytes)


def _encode(obj: Posterior | Fusion) -> list[memoryview]:
    """The parts of a file, after a check that they can be read again."""
    try:
        document, arrays = _parts.take_apart(obj)
        document["sha256"] = _digest(document, arrays)
        data = canonical_json(document)
        chunks = container.encode({_KEY: data.decode()}, arrays)
        entries = {name: container.entry_of(array) for name, array in arrays.items()}
        size = sum(map(len, chunks))
        written = _document.parsed(data, entries, size)
        _document.build(_document.check(written, entries, size), arrays)
        return chunks
    except RecursionError as error:
        raise KLFusionError("cannot be saved: provenance or info contains itself") from error
    except (TypeError, ValueError) as error:  # also of the JSON encoder, as for lone surrogates
        raise KLFusionError(f"cannot be saved: {error}") from error


@contextmanager
def _without_collections() -> Iterator[None]:
    """Pause the search for reference cycles, of which loading makes none among many objects."""
    paused = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if paused:
            gc.enable()


def _decode(stream: BinaryIO, size: int, max_bytes: int) -> Posterior | Fusion:
    check_integer("max_bytes", max_bytes)
    if size > max_bytes:
        raise FileFormatError(f"expected at most {max_bytes} bytes, got {size}: raise max_bytes")
    header, text, document = _read_document(stream, size)
    checked = _document.check(document, header.entries, size)
    in_file_order = sorted(header.entries, key=lambda name: header.entries[name].begin)
    arrays = {name: container.read_array(stream, header, name) for name in in_file_order}
    _check_digest(text, document, arrays)
    del text, document  # what is built takes their memory
    return _document.build(checked, arrays)


def _check_digest(
    text: bytes, document: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]
) -> None:
    """Compare the hash of a document, in canonical JSON or another, with that of its content."""
    expected = document["sha256"]
    hash_of_text = f',"sha256":"{expected}"'.encode(errors="replace")
    at = text.rfind(hash_of_text)  # "sha256" is the last of its sorted keys but one
    rest = memoryview(text)
    if at >= 0 and _digest_of((rest[:at], rest[at + len(hash_of_text) :]), arrays) == expected:
        return
    digest = _digest(document, arrays)
    if expected != digest:
        raise FileFormatError(
            f"expected content with the SHA-256 {expected[:64]!r}, got {digest!r}: "
            "the file was damaged or edited"
        )


def _read_document(stream: BinaryIO, size: int) -> tuple[container.Header, bytes, Any]:
    """The checked header, the text of the document, and what it says."""
    header = container.read_header(stream, size)
    if _KEY not in header.metadata:
        raise FileFormatError("expected a klfusion file, got a safetensors file of something else")
    try:
        text = header.metadata.pop(_KEY).encode()
    except UnicodeEncodeError as error:
        raise FileFormatError(f"expected a document in Unicode, got {error}") from error
    return header, text, _document.parsed(text, header.entries, size)


def _digest(document: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> str:
    """SHA-256 of the document without its hash, and of the arrays by name."""
    rest = {key: value for key, value in document.items() if key != "sha256"}
    return _digest_of((canonical_json(rest),), arrays)


def _digest_of(text: Iterable[bytes | memoryview], arrays: Mapping[str, NDArray[Any]]) -> str:
    digest = hashlib.sha256()
    for part in text:
        digest.update(part)
    for name in sorted(arrays):
        entry = container.entry_of(arrays[name])
        digest.update(b"\n" + canonical_json([name, entry.dtype, [*entry.shape]]) + b"\n")
        digest.update(container.array_bytes(arrays[name]))
    return digest.hexdigest()
