"""A program's text with other names, further conversions, or one of its results."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

__all__ = ["results_of", "rewritten"]


def rewritten(
    text: str,
    renamed: Mapping[str, str],
    *,
    widened: tuple[str, ...] = (),
    rounded: frozenset[str] = frozenset(),
) -> str:
    """Return a program with other names.

    Args:
        text: the program, in the form that ``parse`` reads.
        renamed: value -> the input that stands for it; a step that has one is left out.
        widened: captured tensors that are converted to float32 before all steps.
        rounded: names of steps that are followed by a conversion to float32.
    """
    *lines, last = text.split("\n")
    names = dict(renamed)
    steps: list[str] = []

    def widen(name: str, value: str) -> None:
        steps.append(_dumped(["to", [value, {"dtype": "float32"}], {}]))
        names[name] = f"%{len(steps) - 1}"

    for name in widened:
        widen(name, name)
    for number, line in enumerate(lines):
        name = f"%{number}"
        if name in renamed:
            continue
        word, args, kwargs = json.loads(line)
        steps.append(_dumped([word, _renamed(args, names), _renamed(kwargs, names)]))
        names[name] = f"%{len(steps) - 1}"
        if name in rounded:
            widen(name, names[name])
    return "\n".join([*steps, _dumped(_renamed(json.loads(last), names))])


def results_of(text: str) -> tuple[str, ...]:
    """Return a program for each result of a program."""
    *lines, last = text.split("\n")
    result = json.loads(last)
    results = result if isinstance(result, list) else [result]
    return tuple("\n".join([*lines, _dumped(one)]) for one in results)


def _dumped(item: Any) -> str:
    """Return a line as ``trace`` writes it."""
    return json.dumps(item, separators=(",", ":"))


def _renamed(item: Any, names: Mapping[str, str]) -> Any:
    """Return what a step is given with other references; a keyword's name is none."""
    if isinstance(item, str) and item:
        return names.get(item, item)
    if isinstance(item, list):
        return [_renamed(part, names) for part in item]
    if isinstance(item, dict):
        # {"text": ...} and {"dtype": ...} name no value.
        return {
            name: part
            if name in ("text", "dtype") and isinstance(part, str)
            else _renamed(part, names)
            for name, part in item.items()
        }
    return item
