"""Programs: the steps of a recorded function, parsed from its text."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NoReturn

from torchyard import arguments

__all__ = ["Operation", "Program", "Reference", "parse", "references"]


@dataclass(frozen=True, slots=True)
class Reference:
    """A value of a program: an input, ``%n`` an operation's result, ``$n`` a captured tensor."""

    name: str


@dataclass(frozen=True, slots=True)
class Operation:
    """One step: a word of the vocabulary, or the dotted name of a torch function."""

    result: Reference
    word: str
    args: tuple[Any, ...]
    kwargs: tuple[tuple[str, Any], ...]


@dataclass(frozen=True, slots=True)
class Program:
    """The steps that the result depends on, in order.

    The result is a reference, a number, or a tuple of these where the function returned several.
    """

    operations: tuple[Operation, ...]
    result: Any


def parse(text: str) -> Program:
    """Parse the text of a program, as :func:`trace` returns it.

    Raises:
        TypeError, ValueError: it is not the text of a program.
    """
    return _parsed(arguments.text("parse", "text", text))


@lru_cache(maxsize=1024)
def _parsed(text: str) -> Program:
    *lines, last = text.split("\n")
    operations = []
    for index, line in enumerate(lines):
        step = _loaded(line)
        if [type(part) for part in _listed(step)] != [str, list, dict]:
            _refuse(line)
        word, args, kwargs = step
        operations.append(
            Operation(
                Reference(f"%{index}"),
                word,
                tuple(_decode(arg) for arg in args),
                tuple((name, _decode(value)) for name, value in kwargs.items()),
            )
        )
    result = _decode(_loaded(last))
    needed = set(references(result))
    used = []
    for operation in reversed(operations):
        if operation.result in needed:
            used.append(operation)
            needed.update(references((operation.args, operation.kwargs)))
    return Program(tuple(reversed(used)), result)


def _refuse(line: str) -> NoReturn:
    raise arguments.wrong_value(
        "parse",
        "text",
        "a program's text, as trace() returns it",
        f"the line {line[:60]!r}",
    ) from None


def _loaded(line: str) -> Any:
    try:
        return json.loads(line)
    except json.JSONDecodeError:
        _refuse(line)


def _listed(item: Any) -> list[Any]:
    return item if isinstance(item, list) else []


def references(item: Any) -> Iterator[Reference]:
    """Yield the references that an argument of a step holds."""
    if isinstance(item, Reference):
        yield item
    elif isinstance(item, tuple):
        for part in item:
            yield from references(part)
    elif isinstance(item, slice):
        yield from references((item.start, item.stop, item.step))


def _decode(item: Any) -> Any:
    if isinstance(item, str) and item:
        return Reference(item)
    if isinstance(item, list):
        return tuple(_decode(part) for part in item)
    if item is None or isinstance(item, (bool, int, float)):
        return item
    known: dict[str, Any] = item if isinstance(item, dict) and item else {"": None}
    (kind, value), *more = known.items()
    if kind == "float" and value in ("inf", "-inf", "nan") and not more:
        return float(value)
    if kind == "slice" and len(_listed(value)) == 3 and not more:
        return slice(*(_decode(part) for part in value))
    if kind == "ellipsis" and not more:
        return Ellipsis
    if kind == "text" and isinstance(value, str) and not more:
        return value
    if kind == "dtype" and isinstance(value, str) and not more:
        import torch

        dtype = getattr(torch, value, None)
        if isinstance(dtype, torch.dtype):
            return dtype
    _refuse(json.dumps(item))
