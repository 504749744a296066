"""JSON that somebody else wrote, as dataclasses, with every field checked."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, TypeVar

from torchyard.evidence._errors import DocumentError

__all__ = ["AtMost", "Between", "parse_json", "structure"]

_Kind = TypeVar("_Kind")


@dataclass(frozen=True, slots=True)
class Between:
    """Bounds of an integer, both of which it may have: ``Annotated[int, Between(0, 7)]``."""

    low: int
    high: int


@dataclass(frozen=True, slots=True)
class AtMost:
    """The most characters of a string: ``Annotated[str, AtMost(80)]``."""

    characters: int


def parse_json(data: bytes | str, source: str) -> Any:
    """Return what JSON text holds.

    Args:
        data: the text.
        source: the file's name, for errors.

    Raises:
        DocumentError: it is no JSON, or nested deeper than Python can follow.
    """
    try:
        return json.loads(data)
    except (ValueError, RecursionError) as error:
        raise DocumentError(f"{source}: expected JSON, got a damaged file: {error}") from error


def structure(
    data: object, kind: type[_Kind], source: str, *, ignore_unknown: bool = False
) -> _Kind:
    """Return data that was read from JSON as a dataclass.

    Args:
        data: the data.
        kind: the dataclass. Its fields are str, int, float, bool, None, enums of strings,
            dataclasses, ``Any``, ``Mapping[str, X]`` or ``dict[str, X]``, ``tuple[X, ...]``,
            ``tuple[X, Y]`` and ``list[X]``, unions of these, and ``Annotated`` with
            :class:`Between` or :class:`AtMost`. A field with a default may be missing. An integer
            has at most 64 bits, and stays one where a number is expected.
        source: the file's name, which begins every path; empty where the paths say enough.
        ignore_unknown: leave out keys that are no fields instead of refusing them.

    Raises:
        DocumentError: the first faults, each with the path to it, what was expected and what came.
    """
    # cattrs takes longer to import than most programs that read no document.
    from torchyard.evidence import _structuring

    return _structuring.structured(data, kind, source, ignore_unknown)
