"""The signature of a bundle: one line with the key and the signature; needs the extra ``sign``."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from torchyard.evidence import MissingLibraryError, raised_as
from torchyard.evidence.keys import parse_public_key, read_private_key
from torchyard_conformance._evidence._archive import BundleError

ALGORITHM: Final = "ed25519"


def sign(content: bytes, key: Path) -> str:
    """Return the line that signs the content: the algorithm, the public key, the signature.

    Args:
        content: what is signed.
        key: a PEM file with a private Ed25519 key, such as ``openssl genpkey -algorithm ed25519``
            writes.

    Raises:
        KeyFileError: names the file and what is wrong with it.
    """
    private = read_private_key(key)
    return f"{ALGORITHM} {private.public.hex} {private.sign(content).hex()}\n"


def signer(line: str, content: bytes) -> str:
    """Return the public key, in hexadecimal, that signed the content by such a line.

    Raises:
        BundleError: the line has another form, or the signature is not that key's.
        MissingLibraryError: ``cryptography`` is not installed.
    """
    words = line.split()
    try:
        algorithm, public, text = words
        signature = bytes.fromhex(text)
    except ValueError:
        algorithm, public, signature = "", "", b""
    if line != f"{algorithm} {public} {signature.hex()}\n" or algorithm != ALGORITHM:
        raise BundleError(f"signature: expected '{ALGORITHM} <public key> <signature>', got other")
    try:
        with raised_as(lambda text: BundleError(f"signature: {text.removeprefix('signature: ')}")):
            key = parse_public_key(public)
            key.verify(signature, content)
    except BundleError as error:
        if isinstance(error.__cause__, MissingLibraryError):
            raise error.__cause__ from None
        raise
    return key.hex
