"""Signatures of files, and how files of other machines are read; see docs/evidence.md.

- :mod:`torchyard.evidence.keys`: Ed25519 keys in PEM files, and signatures.
- :mod:`torchyard.evidence.envelopes`: a payload with the signatures of several keys (DSSE).
- :mod:`torchyard.evidence.archives`: members of zip and tar files, in memory and within bounds.
- :mod:`torchyard.evidence.documents`: JSON as dataclasses, with every field checked.
- :mod:`torchyard.evidence.pickles`: pickles of plain containers, without unpickling anything else.
- :mod:`torchyard.evidence.files`: regular files, up to a size.

Importing this package imports none of them. Keys need ``cryptography``, envelopes
``securesystemslib`` too, and documents ``cattrs``: ``pip install 'torchyard[evidence]'``.
"""

from __future__ import annotations

from torchyard.evidence._errors import (
    ArchiveError,
    DocumentError,
    EvidenceError,
    KeyFileError,
    MissingLibraryError,
    SignatureError,
    raised_as,
)

__all__ = [
    "ArchiveError",
    "DocumentError",
    "EvidenceError",
    "KeyFileError",
    "MissingLibraryError",
    "SignatureError",
    "raised_as",
]
