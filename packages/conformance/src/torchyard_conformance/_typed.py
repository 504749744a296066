"""Whether data that somebody else wrote has the types that a dataclass says."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from enum import Enum
from typing import Any, Final, get_args, get_origin, get_type_hints

_NUMBERS: Final = (float, int)


def misfit(value: Any, kind: Any, where: str = "") -> str:
    """Return what is wrong with data that was read from JSON; empty where nothing is.

    Args:
        value: the data.
        kind: str, float, a string enum, a union of these; ``tuple[X, ...]``, which JSON has as a
            list; ``Mapping[str, X]``; or a dataclass of such fields, which JSON has as an object.
        where: the path to the value, for the answer.
    """
    if dataclasses.is_dataclass(kind):
        if not isinstance(value, dict):
            return _said(where, "an object", value)
        return _first(
            misfit(value.get(name), hint, f"{where}.{name}".lstrip("."))
            for name, hint in _hints(kind).items()
        )
    if get_origin(kind) is tuple:
        if not isinstance(value, list):
            return _said(where, "a list", value)
        item = get_args(kind)[0]
        return _first(misfit(part, item, f"{where}[{n}]") for n, part in enumerate(value))
    if get_origin(kind) is Mapping:
        if not isinstance(value, dict):
            return _said(where, "an object", value)
        item = get_args(kind)[1]
        return _first(misfit(part, item, f"{where}[{name!r}]") for name, part in value.items())
    return "" if _is(value, kind) else _said(where, _words(kind), value)


def _hints(kind: Any) -> dict[str, Any]:
    hints = get_type_hints(kind)
    return {item.name: hints[item.name] for item in dataclasses.fields(kind)}


def _is(value: Any, kind: Any) -> bool:
    if arguments := get_args(kind):
        return any(_is(value, item) for item in arguments)
    if kind is float:
        return isinstance(value, _NUMBERS) and not isinstance(value, bool)
    if isinstance(kind, type) and issubclass(kind, Enum):
        return isinstance(value, str) and value in {str(item.value) for item in kind}
    return isinstance(value, kind)


def _words(kind: Any) -> str:
    if arguments := get_args(kind):
        return " or ".join(map(_words, arguments))
    if issubclass(kind, Enum):
        return f"one of {', '.join(str(item.value) for item in kind)}"
    return {str: "a string", float: "a number"}.get(kind, str(kind))


def _first(found: Iterable[str]) -> str:
    return next(filter(None, found), "")


def _said(where: str, expected: str, value: Any) -> str:
    return f"{where or 'data'}: expected {expected}, got {value!r:.60}"
