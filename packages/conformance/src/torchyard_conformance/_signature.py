"""Signatures: who made a bundle, by an Ed25519 key; needs the extra ``sign``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from torchyard_conformance._archive import BundleError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import (
        Ed25519PrivateKey,
        Ed25519PublicKey,
    )

ALGORITHM: Final = "ed25519"
_INSTALL: Final = "pip install 'torchyard-conformance[sign]'"


class KeyFileError(ValueError):
    """A key cannot be read, is of another kind, or nothing here can use it."""


def sign(content: bytes, key: Path) -> str:
    """Return the line that signs the content: the algorithm, the public key, the signature.

    Args:
        content: what is signed.
        key: a PEM file with a private Ed25519 key, such as ``openssl genpkey -algorithm ed25519``
            writes.

    Raises:
        KeyFileError: names the file and what is wrong with it.
    """
    private = _private(key)
    return f"{ALGORITHM} {_raw(private.public_key()).hex()} {private.sign(content).hex()}\n"


def check_private_key(path: Path) -> None:
    """Raise KeyFileError where a file holds no key that can sign."""
    _private(path)


def signer(line: str, content: bytes) -> str:
    """Return the public key, in hexadecimal, that signed the content by such a line.

    Raises:
        BundleError: the line has another form, or the signature is not that key's.
        KeyFileError: ``cryptography`` is not installed.
    """
    words = line.split()
    try:
        algorithm, public, signature = words
        key, signed = bytes.fromhex(public), bytes.fromhex(signature)
    except ValueError:
        algorithm, key, signed = "", b"", b""
    if line != f"{algorithm} {key.hex()} {signed.hex()}\n" or algorithm != ALGORITHM:
        raise BundleError(f"signature: expected '{ALGORITHM} <public key> <signature>', got other")
    _require()
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    try:
        Ed25519PublicKey.from_public_bytes(key).verify(signed, content)
    except (InvalidSignature, ValueError) as error:
        raise BundleError("signature: it is not that of the key that it names") from error
    return key.hex()


def read_public_key(path: Path) -> str:
    """Return the public key of a PEM file, in hexadecimal.

    Raises:
        KeyFileError: names the file and what is wrong with it.
    """
    _require()
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    from cryptography.hazmat.primitives.serialization import load_pem_public_key

    try:
        key = load_pem_public_key(path.read_bytes())
    except (OSError, ValueError, UnsupportedAlgorithm) as error:
        raise KeyFileError(f"{path}: expected a public key as PEM, got: {error}") from error
    if not isinstance(key, Ed25519PublicKey):
        raise KeyFileError(f"{path}: expected an Ed25519 key, got {type(key).__name__}")
    return _raw(key).hex()


def _private(path: Path) -> Ed25519PrivateKey:
    _require()
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    try:
        key = load_pem_private_key(path.read_bytes(), password=None)
    # TypeError: the key is encrypted.
    except (OSError, TypeError, ValueError, UnsupportedAlgorithm) as error:
        raise KeyFileError(
            f"{path}: expected a private key as PEM, without a password, got: {error}"
        ) from error
    if not isinstance(key, Ed25519PrivateKey):
        raise KeyFileError(f"{path}: expected an Ed25519 key, got {type(key).__name__}")
    return key


def _raw(key: Ed25519PublicKey) -> bytes:
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    return bytes(key.public_bytes(Encoding.Raw, PublicFormat.Raw))


def _require() -> None:
    from importlib.util import find_spec

    if find_spec("cryptography") is None:
        raise KeyFileError(
            f"signatures: expected the package 'cryptography', found none; {_INSTALL}"
        )
