"""Signatures in minisign's format: Ed25519 by the library py-minisign, which is an extra."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from klfusion.errors import KLFusionError, MissingDependencyError
from klfusion.io.atomic import write_atomically

SUFFIX = ".minisig"
_OWNER_ONLY = 0o600


def _minisign() -> Any:
    try:
        import minisign  # noqa: PLC0415 (an extra)
    except ImportError as error:
        raise MissingDependencyError(
            f"signatures need {error.name}, which is not installed: pip install 'klfusion[sign]'"
        ) from error
    if not hasattr(minisign, "KeyPair"):  # PyPI has another package whose module has this name
        raise MissingDependencyError(
            "signatures need py-minisign, but another package's module minisign is installed: "
            "pip uninstall minisign, then pip install --force-reinstall py-minisign"
        )
    return minisign


def make_keys(path: str | os.PathLike[str]) -> Path:
    """Write a new secret key, readable by its owner alone, and its public key beside it."""
    secret, public = Path(path), Path(f"{os.fspath(path)}.pub")
    pair = _minisign().KeyPair.generate()
    try:
        secret.parent.mkdir(parents=True, exist_ok=True)
        with open(secret, "xb", opener=lambda p, flags: os.open(p, flags, _OWNER_ONLY)) as file:
            file.write(bytes(pair.secret_key) + b"\n")
    except OSError as error:
        raise KLFusionError(f"{secret}: cannot be written ({error.strerror})") from error
    write_atomically(public, [memoryview(bytes(pair.public_key) + b"\n")])
    return public


def sign(data: bytes, key: str | os.PathLike[str], comment: str) -> bytes:
    """The signature of data; the comment is signed, too."""
    minisign = _minisign()
    try:
        secret = minisign.SecretKey.from_file(key)
        return bytes(secret.sign(data, trusted_comment=comment)) + b"\n"
    except (OSError, minisign.Error) as error:
        raise KLFusionError(f"{key}: expected a secret key of minisign ({error})") from error


def public_key(key: str) -> Any:
    """A public key from its text, or from the path of its file."""
    minisign = _minisign()
    try:
        if Path(key).is_file():
            return minisign.PublicKey.from_file(key)
        return minisign.PublicKey.from_base64(key)
    except (OSError, ValueError) as error:
        raise KLFusionError(f"expected a public key of minisign, got {key!r} ({error})") from error


def public_text(key: str) -> str:
    """A public key as text, from its text or from the path of its file."""
    return str(public_key(key).to_base64(), "ascii")


def signer(data: bytes, signature: bytes, keys: Mapping[str, str]) -> str:
    """The silo whose key made a signature of data."""
    minisign = _minisign()
    if not signature:
        raise KLFusionError("expected a signed message, got none")
    for name, key in keys.items():
        try:
            public_key(key).verify(data, minisign.Signature.from_bytes(signature))
        except minisign.Error:
            continue
        return name
    raise KLFusionError("expected a signature by a silo of this round, got another")
