"""Nested inputs and outputs as lists of leaves, and their structure as plain data.

Lists, tuples (named ones too) and mappings are structure; everything else is a leaf. The order of
leaves is that of ``torch.export``. A packed sequence is structure with two leaves: its ``data``,
padded with zeros as ``[T, B, ...]``, and its ``lengths``, int64 ``[B]`` on the CPU, both in the
order that the sequences had before they were packed. T: the greatest length, B: batch.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from torch import Tensor
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence


def flatten(value: Any, name: str = "") -> list[tuple[str, Any]]:
    """Return (path, leaf) for each leaf; a path reads ``x`` or ``state.0``."""
    if isinstance(value, Tensor) or value is None or isinstance(value, str):
        return [(name, value)]
    if isinstance(value, PackedSequence):
        parts = list(zip(("data", "lengths"), pad_packed_sequence(value), strict=True))
    elif isinstance(value, Mapping):
        parts = [(str(key), item) for key, item in value.items()]
    elif isinstance(value, Sequence):
        parts = [(str(index), item) for index, item in enumerate(value)]
    else:
        return [(name, value)]
    return [leaf for key, item in parts for leaf in flatten(item, f"{name}.{key}" if name else key)]


def structure(value: Any) -> Any:
    """Return the structure as JSON data: ``{"tuple": [...]}``, ``{"dict": {...}}``, or None."""
    if isinstance(value, PackedSequence):
        return {"packed": [None, None]}
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
        if kind == "packed" and parts == [None, None]:
            return _pack(_take(None, rest), _take(None, rest))
    raise ValueError(f"structure: expected a list, tuple, dict, packed or leaf, got {form!r}")


def _pack(data: Any, lengths: Any) -> PackedSequence:
    if not isinstance(data, Tensor) or not isinstance(lengths, Tensor):
        raise ValueError("structure: a packed sequence is a tensor and its lengths")
    try:
        return pack_padded_sequence(data, lengths, enforce_sorted=False)
    except RuntimeError as error:
        raise ValueError(f"structure: a packed sequence: {error}") from error


def restored(form: Any, leaves: Sequence[Any]) -> Any:
    """Put leaves from elsewhere into a structure: packed sequences get lengths that they can have.

    Raises:
        ValueError: as :func:`unflatten`, or the lengths are not those of the data.
    """
    value = unflatten(form, leaves)
    try:
        again = [getattr(leaf, "shape", None) for _, leaf in flatten(value)]
    except RuntimeError as error:
        raise ValueError(f"structure: a packed sequence: {error}") from error
    if again != [getattr(leaf, "shape", None) for leaf in leaves]:
        raise ValueError(
            "structure: a packed sequence: expected a length for each sequence of the batch, from "
            "1 to the size of its time, and one of them that size"
        )
    return value


def shown(form: Any) -> str:
    """Return a structure for a person: ``{x: leaf, state: (leaf, leaf)}``."""
    if not isinstance(form, dict):
        return "leaf"
    kind, parts = next(iter(form.items()))
    if kind == "packed":
        return "PackedSequence"
    if isinstance(parts, dict):
        return "{" + ", ".join(f"{key}: {shown(part)}" for key, part in parts.items()) + "}"
    inside = ", ".join(map(shown, parts))
    return f"[{inside}]" if kind == "list" else f"({inside})"


def packed_in(value: Any, name: str = "") -> Iterator[tuple[str, PackedSequence]]:
    """Return (path, packed sequence) for each in arguments or outputs."""
    if isinstance(value, PackedSequence):
        yield name, value
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from packed_in(item, f"{name}.{key}" if name else str(key))
    elif isinstance(value, (list, tuple)):
        for index, item in enumerate(value):
            yield from packed_in(item, f"{name}.{index}" if name else str(index))


def map_leaves(value: Any, change: Any) -> Any:
    """Return the same structure with each leaf changed; named tuples and mappings become plain."""
    leaves = [change(leaf) for _, leaf in flatten(value)]
    return unflatten(structure(value), leaves)
