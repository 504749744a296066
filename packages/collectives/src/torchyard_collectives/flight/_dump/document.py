"""Documents of dumps and journals, read by torchyard.evidence, in the recorder's own error."""

from __future__ import annotations

from typing import Any, TypeVar

from torchyard.evidence import documents, raised_as
from torchyard_collectives.flight._errors import FlightDumpError

__all__ = ["parsed", "structured"]

_Kind = TypeVar("_Kind")


def parsed(data: bytes | str, source: str) -> Any:
    """Return what JSON text holds; FlightDumpError if it is damaged."""
    with raised_as(FlightDumpError):
        return documents.parse_json(data, source)


def structured(data: object, kind: type[_Kind], source: str) -> _Kind:
    """Return parsed data as a dataclass; FlightDumpError names the wrong field.

    Fields that this version does not know are left out: a later one may have written them.
    """
    with raised_as(lambda text: FlightDumpError(f"{text}; the dump is damaged")):
        return documents.structure(data, kind, source, ignore_unknown=True)
