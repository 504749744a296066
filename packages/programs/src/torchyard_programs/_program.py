"""Programs: what a recorded function does, parsed from its text."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any


@dataclass(frozen=True, slots=True)
class Reference:
    """A value of a program: an input, ``%n`` an operation's result, ``$n`` a captured tensor."""

    name: str


@dataclass(frozen=True, slots=True)
class Operation:
    """One step: a word of the vocabulary, or a torch function's dotted name."""

    result: Reference
    word: str
    args: tuple[Any, ...]
    kwargs: tuple[tuple[str, Any], ...]


@dataclass(frozen=True, slots=True)
class Program:
    """The steps that lead to the result, in order; steps that lead nowhere are left out.

    The result is a reference, a number, or a tuple of these where the function returned several.
    """

    operations: tuple[Operation, ...]
    result: Any


@lru_cache(maxsize=1024)
def parse(text: str) -> Program:
    """Parse a program's text, as the tracer wrote it."""
    *lines, last = text.split("\n")
    operations = []
    for index, line in enumerate(lines):
        word, args, kwargs = json.loads(line)
        operations.append(
            Operation(
                Reference(f"%{index}"),
                word,
                tuple(_decode(arg) for arg in args),
                tuple((name, _decode(value)) for name, value in kwargs.items()),
            )
        )
    result = _decode(json.loads(last))
    needed = set(_references(result))
    kept = []
    for operation in reversed(operations):
        if operation.result in needed:
            kept.append(operation)
            needed.update(_references((operation.args, operation.kwargs)))
    return Program(tuple(reversed(kept)), result)


def _references(item: Any) -> Iterator[Reference]:
    if isinstance(item, Reference):
        yield item
    elif isinstance(item, tuple):
        for part in item:
            yield from _references(part)
    elif isinstance(item, slice):
        yield from _references((item.start, item.stop, item.step))


def _decode(item: Any) -> Any:
    if isinstance(item, str):
        return Reference(item)
    if isinstance(item, list):
        return tuple(_decode(part) for part in item)
    if not isinstance(item, dict):
        return item
    ((kind, value),) = item.items()
    if kind == "float":
        return float(value)
    if kind == "slice":
        return slice(*(_decode(part) for part in value))
    if kind == "ellipsis":
        return Ellipsis
    if kind == "text":
        return value
    import torch

    dtype = getattr(torch, value)
    assert isinstance(dtype, torch.dtype)
    return dtype
