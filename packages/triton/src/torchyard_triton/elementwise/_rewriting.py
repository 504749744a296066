"""A program's text with captured tensors as inputs, one text for each result."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

__all__ = ["element_name", "rewritten"]


def element_name(number: int) -> str:
    """Return the name of the input that stands for a captured tensor's element."""
    return f"c{number}"


def rewritten(
    text: str, *, elements: bool, rounding: frozenset[str] = frozenset()
) -> tuple[str, ...]:
    """Return a program of each result.

    Args:
        text: the program, in the form that ``torchyard_programs.parse`` reads.
        elements: whether captured tensors are read whole: ``$n`` becomes the input ``cn``.
        rounding: names of steps that convert to a half precision: what comes after them is float32
            again.
    """
    *lines, last = text.split("\n")
    numbers: dict[str, str] = {}

    def rename(name: str) -> str:
        if elements and name[0] == "$":
            return element_name(int(name[1:]))
        return numbers.get(name, name)

    steps: list[str] = []
    for number, line in enumerate(lines):
        word, args, kwargs = json.loads(line)
        renamed = _renamed(args, rename), _renamed(kwargs, rename)
        numbers[f"%{number}"] = f"%{len(steps)}"
        steps.append(json.dumps([word, *renamed]))
        if f"%{number}" in rounding:
            wide = ["to", [f"%{len(steps) - 1}", {"dtype": "float32"}], {}]
            numbers[f"%{number}"] = f"%{len(steps)}"
            steps.append(json.dumps(wide))
    result = json.loads(last)
    results = result if isinstance(result, list) else [result]
    return tuple("\n".join([*steps, json.dumps(_renamed(one, rename))]) for one in results)


def _renamed(item: Any, rename: Callable[[str], str]) -> Any:
    """Return what a step is given with other references; a keyword's name is none."""
    if isinstance(item, str) and item:
        return rename(item)
    if isinstance(item, list):
        return [_renamed(part, rename) for part in item]
    if isinstance(item, dict):
        # {"text": ...} and {"dtype": ...} name no value.
        return {
            name: part
            if name in ("text", "dtype") and isinstance(part, str)
            else _renamed(part, rename)
            for name, part in item.items()
        }
    return item
