"""A payload with the signatures of several keys, in the form of DSSE, which other tools read.

What is signed is the payload together with its type, so that a payload of one kind is never taken
for one of another. An envelope has one spelling only: other bytes of the same content are refused.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Final, Self

from torchyard.evidence._errors import MissingLibraryError, SignatureError
from torchyard.evidence.keys import PrivateKey, PublicKey

try:
    from securesystemslib import dsse
    from securesystemslib.exceptions import VerificationError
    from securesystemslib.signer import CryptoSigner, SSlibKey
except ImportError as error:
    raise MissingLibraryError(
        "envelopes: expected the package 'securesystemslib', found none; "
        "pip install 'torchyard[evidence]'"
    ) from error

__all__ = ["Envelope"]

_MOST_BYTES: Final = 64 << 20
_MOST_SIGNATURES: Final = 1024


class Envelope:
    """A payload, its type, and signatures of both; one for each key.

    Args:
        payload: what is signed.
        payload_type: what kind of payload it is, such as ``application/vnd.in-toto+json``.
    """

    def __init__(self, payload: bytes, payload_type: str) -> None:
        self._dsse = dsse.Envelope(payload, payload_type, {})

    @classmethod
    def parse(cls, data: bytes, *, payload_type: str) -> Self:
        """Return the envelope in a file's bytes; none of its signatures has been verified.

        Raises:
            SignatureError: it is no envelope, is spelled in another way than :meth:`to_bytes`
                spells it, or its payload is of another type.
        """
        if len(data) > _MOST_BYTES:
            raise SignatureError(f"envelope: expected at most {_MOST_BYTES} bytes, got {len(data)}")
        found = cls(b"", payload_type)
        try:
            found._dsse = dsse.Envelope.from_dict(json.loads(data))
            again = found.to_bytes()
        # Whatever a file from outside makes the parser raise, it is not an envelope.
        except Exception as error:
            raise SignatureError(
                f"envelope: it cannot be read: {type(error).__name__}: {error}"
            ) from error
        if again != data:
            raise SignatureError(
                "envelope: its bytes are not the ones that this tool writes for its content"
            )
        if found._dsse.payload_type != payload_type:
            raise SignatureError(
                f"envelope: expected a payload of type {payload_type!r}, got "
                f"{found._dsse.payload_type!r}"
            )
        if found.count > _MOST_SIGNATURES:
            raise SignatureError(
                f"envelope: expected at most {_MOST_SIGNATURES} signatures, got {found.count}"
            )
        return found

    @property
    def payload(self) -> bytes:
        """What is signed."""
        return self._dsse.payload

    @property
    def count(self) -> int:
        """How many signatures it holds, of whomever."""
        return len(self._dsse.signatures)

    def sign(self, key: PrivateKey) -> None:
        """Add a key's signature; again by the same key changes nothing."""
        self._dsse.sign(CryptoSigner(key.loaded))

    def signers(self, keys: Sequence[PublicKey]) -> tuple[PublicKey, ...]:
        """Return those of some keys whose signature it holds, each once."""
        return tuple(key for key in dict.fromkeys(keys) if self._signed_by(key))

    def require(self, keys: Sequence[PublicKey], threshold: int) -> tuple[PublicKey, ...]:
        """Return those of some keys that signed it.

        Args:
            keys: whose signatures count; the same key twice counts once.
            threshold: how many different ones of them are needed; at least 1.

        Raises:
            SignatureError: fewer have signed.
        """
        if threshold < 1:
            raise SignatureError(f"threshold: expected at least 1, got {threshold}")
        found = self.signers(keys)
        if len(found) < threshold:
            raise SignatureError(
                f"expected {threshold} valid signature(s) of the {len(keys)} known key(s), found "
                f"{len(found)}"
            )
        return found

    def to_bytes(self) -> bytes:
        """Return the one JSON text of the envelope."""
        return (json.dumps(self._dsse.to_dict(), indent=1, sort_keys=True) + "\n").encode()

    def _signed_by(self, key: PublicKey) -> bool:
        try:
            self._dsse.verify([SSlibKey.from_crypto(key.loaded())], 1)
        except VerificationError:
            return False
        return True
