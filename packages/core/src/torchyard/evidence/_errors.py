"""What is raised where evidence is refused."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from torchyard._errors import TorchyardError


class EvidenceError(TorchyardError, ValueError):
    """Something that was written elsewhere is refused; the text says what was expected."""


class ArchiveError(EvidenceError):
    """An archive is damaged, too large, or holds what a plain archive of files does not."""


class DocumentError(EvidenceError):
    """A document is damaged, or one of its fields is not what its type says."""


class KeyFileError(EvidenceError):
    """A key cannot be read, is of another kind, or nothing here can use it."""


class MissingLibraryError(KeyFileError):
    """The library that signs and verifies is not installed."""


class SignatureError(EvidenceError):
    """A signature is not that of the key over the content, or too few of them are."""


@contextmanager
def raised_as(kind: Callable[[str], Exception]) -> Iterator[None]:
    """Raise an :class:`EvidenceError` of the block as a package's own error, with its text."""
    try:
        yield
    except EvidenceError as error:
        raise kind(str(error)) from error
