"""Ed25519 keys, read from PEM files as openssl writes them, and their signatures.

One algorithm, so that no file says which one it wants to be verified by.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final

from torchyard.evidence._errors import (
    EvidenceError,
    KeyFileError,
    MissingLibraryError,
    SignatureError,
)
from torchyard.evidence.files import read_file

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric import ed25519

__all__ = [
    "PrivateKey",
    "PublicKey",
    "generate_private_key",
    "parse_public_key",
    "read_private_key",
    "read_public_key",
    "write_key_pair",
]

# A PEM file of an Ed25519 key has some 120 bytes; one with a chain of comments a few thousand.
_MOST_BYTES: Final = 1 << 16
_INSTALL: Final = "pip install 'torchyard[evidence]'"
_PRIVATE: Final = b"PRIVATE KEY-----"
_PUBLIC: Final = b"PUBLIC KEY-----"


@dataclass(frozen=True, slots=True)
class PublicKey:
    """A key that verifies; two are equal when their bytes are.

    Attributes:
        raw: its 32 bytes.
    """

    raw: bytes

    @property
    def hex(self) -> str:
        """The bytes in hexadecimal: how files name a key."""
        return self.raw.hex()

    def verify(self, signature: bytes, content: bytes) -> None:
        """Raise SignatureError where a signature is not this key's over the content."""
        from cryptography.exceptions import InvalidSignature

        try:
            self.loaded().verify(signature, content)
        except InvalidSignature as error:
            raise SignatureError(
                f"signature: expected one by the key {self.hex}, got one by another key or of "
                "other content"
            ) from error

    def loaded(self) -> ed25519.Ed25519PublicKey:
        """Return the key as ``cryptography`` has it."""
        _require_library()
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

        return Ed25519PublicKey.from_public_bytes(self.raw)


@dataclass(frozen=True, slots=True)
class PrivateKey:
    """A key that signs; it is not shown when it is printed.

    Attributes:
        loaded: the key as ``cryptography`` has it.
    """

    loaded: ed25519.Ed25519PrivateKey = field(repr=False)

    @property
    def public(self) -> PublicKey:
        """The key that verifies what this one signs."""
        return PublicKey(self.loaded.public_key().public_bytes_raw())

    def sign(self, content: bytes) -> bytes:
        """Return the signature of some content: 64 bytes, the same ones each time."""
        return self.loaded.sign(content)


def read_private_key(path: Path) -> PrivateKey:
    """Read a private key, as ``openssl genpkey -algorithm ed25519`` writes it.

    Raises:
        KeyFileError: names the file, what was expected and what came.
    """
    data = _read(path, "a private key as PEM, without a password")
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    try:
        key = load_pem_private_key(data, password=None)
    except TypeError as error:
        raise KeyFileError(
            f"{path}: expected a private key as PEM, without a password, got an encrypted one; "
            f"`openssl pkey -in {path.name} -out plain.pem` takes the password off"
        ) from error
    except (ValueError, UnsupportedAlgorithm) as error:
        found = "a public key" if _PUBLIC in data and _PRIVATE not in data else str(error)
        raise KeyFileError(
            f"{path}: expected a private key as PEM, without a password, got: {found}"
        ) from error
    if not isinstance(key, Ed25519PrivateKey):
        raise KeyFileError(f"{path}: expected an Ed25519 key, got {type(key).__name__}")
    return PrivateKey(key)


def read_public_key(path: Path) -> PublicKey:
    """Read a public key, as ``openssl pkey -pubout`` writes it.

    Raises:
        KeyFileError: names the file, what was expected and what came.
    """
    data = _read(path, "a public key as PEM")
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    from cryptography.hazmat.primitives.serialization import load_pem_public_key

    try:
        key = load_pem_public_key(data)
    except (ValueError, UnsupportedAlgorithm) as error:
        found = "a private key" if _PRIVATE in data else str(error)
        raise KeyFileError(f"{path}: expected a public key as PEM, got: {found}") from error
    if not isinstance(key, Ed25519PublicKey):
        raise KeyFileError(f"{path}: expected an Ed25519 key, got {type(key).__name__}")
    return PublicKey(key.public_bytes_raw())


def parse_public_key(text: str) -> PublicKey:
    """Return the public key that a file names in hexadecimal.

    Raises:
        KeyFileError: it has another form than :attr:`PublicKey.hex`.
    """
    try:
        key = PublicKey(bytes.fromhex(text))
        key.loaded()
    except (TypeError, ValueError) as error:
        if isinstance(error, MissingLibraryError):
            raise
        key = PublicKey(b"")
    if not key.raw or key.hex != text:
        raise KeyFileError(
            f"key: expected 64 hexadecimal digits of an Ed25519 public key, got {text!r:.100}"
        )
    return key


def generate_private_key() -> PrivateKey:
    """Return a new private key."""
    _require_library()
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    return PrivateKey(Ed25519PrivateKey.generate())


def write_key_pair(path: Path) -> PublicKey:
    """Write a new private key, for its owner's eyes alone, and its public one beside it, as .pub.

    Raises:
        KeyFileError: one of the files is there, or cannot be written.
    """
    beside = path.with_suffix(".pub")
    for there in (path, beside):
        if there.exists():
            raise KeyFileError(
                f"{there}: expected no such file, a key is never overwritten; choose another name, "
                "or use the key that is there"
            )
    key = generate_private_key()
    from cryptography.hazmat.primitives.serialization import (
        Encoding,
        NoEncryption,
        PrivateFormat,
        PublicFormat,
    )

    private = key.loaded.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    public = key.loaded.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        # Its owner's before there is anything in it.
        path.touch(mode=0o600, exist_ok=False)
        path.write_bytes(private)
        beside.write_bytes(public)
    except OSError as error:
        raise KeyFileError(f"{path}: expected a place to write a key to, got: {error}") from error
    return key.public


def _read(path: Path, expected: str) -> bytes:
    _require_library()
    try:
        return read_file(path, _MOST_BYTES)
    except (OSError, EvidenceError) as error:
        raise KeyFileError(f"{path}: expected {expected}, got: {error}") from error


def _require_library() -> None:
    if find_spec("cryptography") is None:
        raise MissingLibraryError(
            f"signatures: expected the package 'cryptography', found none; {_INSTALL}"
        )
