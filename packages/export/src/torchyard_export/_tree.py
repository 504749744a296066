"""Nested inputs and outputs as lists of leaves, and their structure as plain data.

Lists, tuples (named ones too) and mappings are structure; everything else is a leaf. The order of
leaves is that of ``torch.export``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor


def flatten(value: Any, name: str = "") -> list[tuple[str, Any]]:
    """Return (path, leaf) for each leaf; a path reads ``x`` or ``state.0``."""
    if isinstance(value, Tensor) or value is None or isinstance(value, str):
        return [(name, value)]
    if isinstance(value, Mapping):
        parts = [(str(key), item) for key, item in value.items()]
    elif isinstance(value, Sequence):
        parts = [(str(index), item) for index, item in enumerate(value)]
    else:
        return [(name, value)]
    return [leaf for key, item in parts for leaf in flatten(item, f"{name}.{key}" if name else key)]


def structure(value: Any) -> Any:
    """Return the structure as JSON data: ``{"tuple": [...]}``, ``{"dict": {...}}``, or None."""
    if isinstance(value, Mapping):
        if not all(isinstance(key, str) for key in value):
            raise TypeError(f"expected mappings with names as keys, got {list(value)!r}")
        return {"dict": {key: structure(item) for key, item in value.items()}}
    if isinstance(value, Sequence) and not isinstance(value, str):
        kind = "list" if isinstance(value, list) else "tuple"
        return {kind: [structure(item) for item in value]}
    return None


def unflatten(form: Any, leaves: Sequence[Any]) -> Any:
    """Put leaves into a structure.

    Raises:
        ValueError: the form is no structure, or wants another number of leaves.
    """
    rest = list(leaves)
    value = _take(form, rest)
    if rest:
        raise ValueError(f"structure: {len(rest)} leaves too many")
    return value


def _take(form: Any, rest: list[Any]) -> Any:
    if form is None:
        if not rest:
            raise ValueError("structure: a leaf is missing")
        return rest.pop(0)
    if isinstance(form, dict) and len(form) == 1:
        kind, parts = next(iter(form.items()))
        if kind == "dict" and isinstance(parts, dict):
            return {key: _take(part, rest) for key, part in parts.items()}
        if kind in {"list", "tuple"} and isinstance(parts, list):
            items = [_take(part, rest) for part in parts]
            return items if kind == "list" else tuple(items)
    raise ValueError(f"structure: expected a list, tuple, dict or leaf, got {form!r}")


def map_leaves(value: Any, change: Any) -> Any:
    """Return the same structure with each leaf changed; named tuples and mappings become plain."""
    leaves = [change(leaf) for _, leaf in flatten(value)]
    return unflatten(structure(value), leaves)
