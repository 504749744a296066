"""Approvers' keys, read by torchyard.evidence, with errors of the release train."""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path

from torchyard.evidence import keys, raised_as
from torchyard.evidence.keys import PrivateKey, PublicKey
from torchyard_release._errors import ReleaseError


def read_private_key(path: Path) -> PrivateKey:
    """Read a private key from PEM, as ``openssl genpkey -algorithm ed25519`` writes it."""
    with _told():
        return keys.read_private_key(path)


def read_public_key(path: Path) -> PublicKey:
    """Read a public key from PEM, as ``openssl pkey -pubout`` writes it."""
    with _told():
        return keys.read_public_key(path)


def parse_public_key(text: str, *, owner: str) -> PublicKey:
    """Return the key that train.toml lists in hexadecimal for somebody."""
    remedy = "`torchyard release key show FILE.pem` prints them"
    with raised_as(lambda said: ReleaseError(f"train.toml: signing.keys.{owner}: {said}", remedy)):
        return keys.parse_public_key(text)


def make_key(path: Path) -> str:
    """Write a new private key, for its owner's eyes only, and its public one beside it.

    Returns:
        the public key, in hexadecimal.
    """
    with _told():
        return keys.write_key_pair(path).hex


def _told() -> AbstractContextManager[None]:
    remedy = "`torchyard release key make FILE.pem` makes a pair of the right kind"
    return raised_as(lambda said: ReleaseError(said, remedy))
