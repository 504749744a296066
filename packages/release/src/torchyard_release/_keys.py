"""Keys: Ed25519 alone, read from PEM files, named by what they are."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
    load_pem_public_key,
)
from securesystemslib.signer import CryptoSigner, Key, Signer, SSlibKey

from torchyard_release._atomic import write_atomically
from torchyard_release._errors import ReleaseError


@dataclass(frozen=True, slots=True)
class Signatory:
    """Who can sign.

    Attributes:
        signer: signs by the private key.
        public: the public key, in hexadecimal: how train.toml lists it.
    """

    signer: Signer
    public: str


def read_private_key(path: Path) -> Signatory:
    """Read a private key from PEM, as ``openssl genpkey -algorithm ed25519`` writes it."""
    try:
        key = load_pem_private_key(path.read_bytes(), password=None)
    # TypeError: the key is encrypted.
    except (OSError, TypeError, ValueError, UnsupportedAlgorithm) as error:
        raise _unreadable(path, "a private key as PEM, without a password", error) from error
    if not isinstance(key, Ed25519PrivateKey):
        raise _unreadable(path, "an Ed25519 key", type(key).__name__)
    return Signatory(CryptoSigner(key), _raw(key.public_key()))


def read_public_key(path: Path) -> Key:
    """Read a public key from PEM, as ``openssl pkey -pubout`` writes it."""
    try:
        key = load_pem_public_key(path.read_bytes())
    except (OSError, ValueError, UnsupportedAlgorithm) as error:
        raise _unreadable(path, "a public key as PEM", error) from error
    if not isinstance(key, Ed25519PublicKey):
        raise _unreadable(path, "an Ed25519 key", type(key).__name__)
    return SSlibKey.from_crypto(key)


def parse_public_key(text: str, *, owner: str) -> Key:
    """Return the key that train.toml lists in hexadecimal for somebody."""
    try:
        return SSlibKey.from_crypto(Ed25519PublicKey.from_public_bytes(bytes.fromhex(text)))
    except ValueError as error:
        raise ReleaseError(
            f"train.toml: signing.keys.{owner}: expected 64 hexadecimal digits of an Ed25519 "
            f"public key, got {text!r}",
            remedy="`torchyard release key show FILE.pem` prints them",
        ) from error


def make_key(path: Path) -> str:
    """Write a new private key, for its owner's eyes only, and its public one beside it.

    Returns:
        the public key, in hexadecimal.
    """
    public_path = path.with_suffix(".pub")
    for there in (path, public_path):
        if there.exists():
            raise ReleaseError(
                f"{there}: expected no such file; a key is never overwritten",
                remedy="choose another name, or use the key that is there",
            )
    key = Ed25519PrivateKey.generate()
    pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        # Its own before there is anything in it.
        path.touch(mode=0o600, exist_ok=False)
        path.write_bytes(pem)
    except OSError as error:
        raise _unreadable(path, "a place to write a key to", error) from error
    public = key.public_key()
    write_atomically(
        public_path, public.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    )
    return _raw(public)


def _raw(key: Ed25519PublicKey) -> str:
    return key.public_bytes(Encoding.Raw, PublicFormat.Raw).hex()


def _unreadable(path: Path, expected: str, found: object) -> ReleaseError:
    return ReleaseError(
        f"{path}: expected {expected}, got: {found}",
        remedy="`torchyard release key make FILE.pem` makes a pair of the right kind",
    )
