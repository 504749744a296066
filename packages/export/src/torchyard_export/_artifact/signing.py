"""The signature of an artifact: Ed25519 over the manifest, which holds every other digest."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from torchyard.evidence import raised_as
from torchyard.evidence.documents import parse_json, structure
from torchyard.evidence.keys import parse_public_key, read_private_key
from torchyard_export._errors import ArtifactError


@dataclass(frozen=True, slots=True)
class _Signature:
    """The member: a public key and its signature of the manifest, in hexadecimal."""

    key: str
    signature: str


def sign(manifest: bytes, key: Path) -> bytes:
    """Return the signature member.

    Args:
        manifest: the member that is signed.
        key: a PEM file with a private Ed25519 key, without a password.

    Raises:
        ArtifactError: the key cannot be read, or nothing here can sign.
    """
    with raised_as(lambda text: ArtifactError(f"key: {text}")):
        private = read_private_key(key)
    said = _Signature(private.public.hex, private.sign(manifest).hex())
    return json.dumps(asdict(said), indent=1, sort_keys=True).encode() + b"\n"


def signer(signature: bytes, manifest: bytes) -> str:
    """Return the public key that signed a manifest, in hexadecimal.

    Raises:
        ArtifactError: it is no signature of this manifest, or nothing here can check one.
    """
    with raised_as(ArtifactError):
        said = structure(parse_json(signature, "signature"), _Signature, "signature")
        key = parse_public_key(said.key)
        try:
            content = bytes.fromhex(said.signature)
        except ValueError:
            content = b""
        key.verify(content, manifest)
    return key.hex
