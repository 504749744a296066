"""Ranks compare what each is about to do before any of them sends a tensor.

A check that fails on one rank only would leave the others waiting for it in the middle of an
exchange. So every rank brings what its own checks found to one small collective; either all go on,
or all raise the same error, which names the rank.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

import torch
import torch.distributed as dist
from torch import Tensor

from torchyard import TransformError, UnsupportedError
from torchyard_attention import DoubleBackwardError, ProgramError
from torchyard_collectives import CallMismatchError
from torchyard_context_parallel._methods.exchange import all_numbers
from torchyard_context_parallel._place import Place

# A refusal travels as the number of its type and its text. A subclass comes before its base.
_TYPES: tuple[type[Exception], ...] = (
    ProgramError,
    DoubleBackwardError,
    TransformError,
    CallMismatchError,
    UnsupportedError,
    TypeError,
    IndexError,
    ValueError,
    RuntimeError,
)
_NO_REFUSAL = -1
# As many at every place, so that ranks at different ones still make the same collective.
_NUMBERS = 2


def agree(
    place: Place,
    call: str,
    fields: Mapping[str, object],
    *,
    numbers: Sequence[int] = (),
    refusal: Exception | None = None,
    device: torch.device | None = None,
) -> list[list[int]]:
    """Return every rank's numbers once all ranks make the same call and none refuses it.

    Args:
        place: the ranks that take part, and this one among them.
        call: what is about to happen, for messages.
        fields: what must be equal on all ranks, by the names that a user knows.
        numbers: what may differ, at most two.
        refusal: the error of this rank's own checks.
        device: where numbers are exchanged; None: the CPU.

    Raises:
        CallMismatchError: ranks are about to do different things; names the fields and ranks.
        Exception: a rank refused; on every rank an error of the same type and text, which names the
            rank unless all said the same.
    """
    text = "\n".join([call, *(f"{name}\t{value}" for name, value in fields.items())])
    kind = _NO_REFUSAL
    if refusal is not None:
        kind = next(
            (n for n, known in enumerate(_TYPES) if isinstance(refusal, known)), len(_TYPES)
        )
        name = "" if kind < len(_TYPES) else f"{type(refusal).__name__}: "
        text = f"{name}{refusal}"
    told = text.encode()
    digest = int.from_bytes(hashlib.blake2b(told, digest_size=8).digest(), signed=True)
    numbers = [*numbers, *(0,) * (_NUMBERS - len(numbers))]
    own = [digest, kind, len(told), *numbers]
    if isinstance(refusal, TransformError):
        # A transform of this thread would take the exchange for a part of what it transforms.
        with ThreadPoolExecutor(1) as outside:
            rows = outside.submit(_gathered, place, own, device).result()
            texts = outside.submit(_texts, place, told, [row[2] for row in rows], device).result()
    else:
        rows = _gathered(place, own, device)
        texts = []
    if all(row[:2] == [digest, _NO_REFUSAL] for row in rows):
        return [row[3:] for row in rows]
    texts = texts or _texts(place, told, [row[2] for row in rows], device)
    refused = [rank for rank, row in enumerate(rows) if row[1] != _NO_REFUSAL]
    if not refused:
        raise CallMismatchError(_differences(texts))
    if refusal is not None and len({(row[0], row[1]) for row in rows}) == 1:
        raise refusal
    first = refused[0]
    raise _error(
        rows[first][1], f"{texts[first]} (rank {first} refused; all ranks stop)"
    ) from refusal


def device_of(tensor: object) -> torch.device | None:
    """Return where ranks that are given a tensor exchange numbers, or what came in its stead."""
    # What has no values is refused, and carries no numbers either.
    return tensor.device if isinstance(tensor, Tensor) and not tensor.is_meta else None


def _error(kind: int, text: str) -> Exception:
    return _TYPES[kind](text) if kind < len(_TYPES) else RuntimeError(text)


def _differences(texts: Sequence[str]) -> str:
    """Return which fields differ, and what each rank has."""
    calls = [text.split("\n") for text in texts]
    names = {lines[0] for lines in calls}
    if len(names) > 1:
        told = "; ".join(f"rank {rank}: {lines[0]}" for rank, lines in enumerate(calls))
        return f"expected every rank to make the same call, got {told}"
    found = [dict(line.split("\t", 1) for line in lines[1:]) for lines in calls]
    differing = [
        f"{name}: expected the same on every rank, got "
        + ", ".join(
            f"{fields.get(name, 'none')} on rank {rank}" for rank, fields in enumerate(found)
        )
        for name in dict.fromkeys(name for fields in found for name in fields)
        if len({fields.get(name) for fields in found}) > 1
    ]
    return f"{calls[0][0]}: " + "; ".join(differing)


def _gathered(place: Place, own: Sequence[int], device: torch.device | None) -> list[list[int]]:
    """Return every rank's numbers, in the order of the mesh."""
    numbers = list(own)
    for group in reversed(place.groups):
        numbers = all_numbers(group, numbers, device or torch.device("cpu"))
    return [numbers[start : start + len(own)] for start in range(0, len(numbers), len(own))]


def _texts(
    place: Place, own: bytes, lengths: Sequence[int], device: torch.device | None
) -> list[str]:
    """Return every rank's text, in the order of the mesh."""
    longest = max(max(lengths), 1)
    padded = torch.tensor(list(own.ljust(longest, b"\0")), dtype=torch.uint8, device=device)
    rows: Tensor = padded[None]
    for group in reversed(place.groups):
        parts = [torch.empty_like(rows) for _ in range(group.size())]
        dist.all_gather(parts, rows, group=group)
        rows = torch.cat(parts)
    return [
        bytes(row.tolist())[:length].decode(errors="replace")
        for row, length in zip(rows, lengths, strict=True)
    ]
