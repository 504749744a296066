"""Signatures of artifacts: Ed25519 over the manifest, which holds every other member's digest."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from torchyard_export._errors import ArtifactError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

_INSTALL: Final = "pip install 'torchyard-export[sign]'"


def sign(manifest: bytes, key: Path) -> bytes:
    """Return the signature member: the public key and the signature, in hexadecimal.

    Args:
        manifest: the member that is signed.
        key: a PEM file with a private Ed25519 key, without a password.

    Raises:
        ArtifactError: the key cannot be read, or nothing here can sign.
    """
    _require()
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    try:
        private = load_pem_private_key(key.read_bytes(), password=None)
    # TypeError: the key is encrypted.
    except (OSError, TypeError, ValueError, UnsupportedAlgorithm) as error:
        raise ArtifactError(
            f"{key}: expected a private key as PEM, without a password, got: {error}"
        ) from error
    if not isinstance(private, Ed25519PrivateKey):
        raise ArtifactError(f"{key}: expected an Ed25519 key, got {type(private).__name__}")
    said = {"key": _hex(private.public_key()), "signature": private.sign(manifest).hex()}
    return json.dumps(said, indent=1, sort_keys=True).encode() + b"\n"


def signer(signature: bytes, manifest: bytes) -> str:
    """Return the public key that signed a manifest, in hexadecimal.

    Raises:
        ArtifactError: it is no signature of this manifest, or nothing here can check one.
    """
    _require()
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    try:
        said: Any = json.loads(signature)
        public = Ed25519PublicKey.from_public_bytes(bytes.fromhex(said["key"]))
        public.verify(bytes.fromhex(said["signature"]), manifest)
    except (AttributeError, InvalidSignature, KeyError, TypeError, ValueError) as error:
        raise ArtifactError(
            f"signature: expected one of this manifest, got another ({type(error).__name__})"
        ) from error
    return _hex(public)


def read_public_key(path: Path) -> str:
    """Return the public Ed25519 key of a PEM file, in hexadecimal; raises ArtifactError."""
    _require()
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    from cryptography.hazmat.primitives.serialization import load_pem_public_key

    try:
        key = load_pem_public_key(path.read_bytes())
    except (OSError, ValueError, UnsupportedAlgorithm) as error:
        raise ArtifactError(f"{path}: expected a public key as PEM, got: {error}") from error
    if not isinstance(key, Ed25519PublicKey):
        raise ArtifactError(f"{path}: expected an Ed25519 key, got {type(key).__name__}")
    return _hex(key)


def _hex(key: Ed25519PublicKey) -> str:
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    return bytes(key.public_bytes(Encoding.Raw, PublicFormat.Raw)).hex()


def _require() -> None:
    from importlib.util import find_spec

    if find_spec("cryptography") is None:
        raise ArtifactError(
            f"signatures: expected the package 'cryptography', found none; {_INSTALL}"
        )
