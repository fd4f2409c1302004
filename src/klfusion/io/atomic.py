"""Reading of regular files and atomic writing, with one clear error."""

import os
import secrets
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any, BinaryIO

from klfusion.errors import FileFormatError, KLFusionError


def _path(path: Any) -> Path:
    if not isinstance(path, str | os.PathLike):
        raise KLFusionError(f"expected a path, got {type(path).__name__}")
    return Path(path)


def _reason(error: Exception) -> str:
    return (isinstance(error, OSError) and error.strerror) or str(error)


@contextmanager
def opened(path: str | os.PathLike[str]) -> Iterator[tuple[BinaryIO, int]]:
    """Open a regular file and return it with its size; errors name the file."""
    target = _path(path)
    with one_error(str(target)):
        try:
            # Checked before opening: opening a pipe would block.
            if not stat.S_ISREG(target.stat().st_mode):
                raise FileFormatError("expected a klfusion file, got a directory or device")
            with target.open("rb") as stream:
                yield stream, os.fstat(stream.fileno()).st_size
        except KLFusionError:
            raise
        except (OSError, ValueError) as error:  # ValueError: not a valid file name
            text = f"expected a klfusion file, got none that can be read ({_reason(error)})"
            raise FileFormatError(text) from error


@contextmanager
def one_error(source: str) -> Iterator[None]:
    """Turn errors into a `FileFormatError` that begins with the source."""
    try:
        yield
    except KLFusionError as error:
        raise FileFormatError(f"{source}: {str(error)[:1000]}") from error
    except MemoryError as error:
        raise FileFormatError(f"{source}: expected content that fits in memory") from error


def write_atomically(
    path: str | os.PathLike[str], chunks: Iterable[memoryview], *, follow: bool = True
) -> None:
    """Write a file so that readers see the old one until the new one is complete.

    A link is kept and its target replaced, unless ``follow`` is false: where others can make links.
    """
    given = _path(path)
    temporary = None
    try:
        target = Path(os.path.realpath(given)) if follow else given
        mode = _mode_of(target) if follow or not target.is_symlink() else None
        temporary = target.with_name(f".klfusion-{secrets.token_hex(8)}.tmp")
        created = 0o666 if mode is None else mode  # the umask applies to it
        with open(temporary, "xb", opener=lambda p, flags: os.open(p, flags, created)) as file:
            file.writelines(chunks)
            file.flush()
            os.fsync(file.fileno())
        if mode is not None:
            temporary.chmod(mode)
        os.replace(temporary, target)  # noqa: PTH105 (documented as atomic)
    except (OSError, ValueError) as error:  # ValueError: not a valid file name
        raise KLFusionError(f"{given}: cannot be written ({_reason(error)})") from error
    finally:  # also after KeyboardInterrupt; no such file after os.replace
        if temporary is not None:
            with suppress(OSError):
                temporary.unlink(missing_ok=True)


def _mode_of(target: Path) -> int | None:
    """Permissions of an existing file, or None."""
    try:
        status = target.stat()
    except FileNotFoundError:
        if not target.parent.is_dir():
            raise OSError(f"there is no directory {target.parent}") from None
        return None
    if not stat.S_ISREG(status.st_mode):
        raise OSError("not a regular file")
    return stat.S_IMODE(status.st_mode)


def locked(file: IO[Any]) -> bool:
    """Lock a file, if no other process has; the lock ends with the process."""
    try:
        import fcntl  # noqa: PLC0415 (absent from Windows)
    except ImportError:
        return True
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
