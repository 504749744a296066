"""Checks of what a user hands to a recurrent layer."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import torch
from torch import Tensor

from torchyard import arguments
from torchyard_kernels.recurrent.contract import CellWeights, RecurrentKind, gates

__all__ = [
    "cells",
    "check_input",
    "check_lengths_form",
    "check_state",
    "checked_cells",
    "listed_weights",
]

_DTYPES: Final = (torch.float32, torch.bfloat16, torch.float16, torch.float64)


def check_input(of: str, input: Tensor) -> None:
    """Raise TypeError or ValueError where the input is not [T, B, I] or [T, I] of floats."""
    arguments.tensor(
        of,
        "input",
        input,
        dims=(2, 3),
        dtypes=_DTYPES,
        shape="[T, B, I], [B, T, I] with batch_first, or [T, I]",
    )


def listed_weights(of: str, weights: object) -> tuple[Tensor, ...]:
    """Return weights as they are listed; raise TypeError where they are no tensors."""
    several = isinstance(weights, Iterable) and not isinstance(weights, Tensor | str | bytes)
    return arguments.sequence(
        of,
        "weights",
        tuple(weights) if several else weights,  # type: ignore[arg-type]
        arguments.tensor,
        expected="a list of tensors in torch's order",
        least=1,
        remedy="of a torch.nn.LSTM, GRU or RNN pass list(module.parameters())",
    )


def _per_cell(weights: Sequence[Tensor], num_layers: int, bidirectional: bool) -> int:
    """Return the number of tensors of each layer and direction; 0 if it is not the same for all."""
    count = num_layers * (2 if bidirectional else 1)
    return 0 if count < 1 or len(weights) % count else len(weights) // count


def cells(
    weights: Sequence[Tensor], num_layers: int, bidirectional: bool
) -> tuple[CellWeights, ...]:
    """Return torch's flat list of weights by layer and direction."""
    size = _per_cell(weights, num_layers, bidirectional)
    found = []
    for start in range(0, len(weights), size):
        part = weights[start : start + size]
        b_ih, b_hh = (part[2], part[3]) if size >= 4 else (None, None)
        w_hr = part[-1] if size % 2 else None
        found.append(CellWeights(part[0], part[1], b_ih, b_hh, w_hr))
    return tuple(found)


def checked_cells(
    of: str,
    kind: RecurrentKind,
    input: Tensor,
    weights: Sequence[Tensor],
    num_layers: int,
    bidirectional: bool,
) -> tuple[CellWeights, ...]:
    """Return the weights by layer and direction.

    Raises:
        TypeError: a weight's dtype or device is not the input's.
        ValueError: their number or a shape does not fit.
    """
    size = _per_cell(weights, num_layers, bidirectional)
    projecting = kind is RecurrentKind.LSTM
    if size not in ((2, 3, 4, 5) if projecting else (2, 4)):
        directions = 2 if bidirectional else 1
        extra = ", and one more each with a projection" if projecting else ""
        raise ValueError(
            f"{of}: weights: expected 4 tensors, or 2 without biases{extra}, for each of "
            f"{num_layers} layers and {directions} directions, got {len(weights)}; check "
            "num_layers and bidirectional"
        )
    found = cells(weights, num_layers, bidirectional)
    _check_shapes(of, kind, input, found, num_layers, bidirectional)
    return found


def _check_shapes(
    of: str,
    kind: RecurrentKind,
    input: Tensor,
    found: tuple[CellWeights, ...],
    num_layers: int,
    bidirectional: bool,
) -> None:
    count, directions = gates(kind), 2 if bidirectional else 1
    rows = found[0].w_hh.shape[0]
    if found[0].w_hh.ndim != 2 or rows % count or not rows:
        raise ValueError(
            f"{of}: weights[1]: expected weight_hh [{count} * hidden_size, outputs], got "
            f"{list(found[0].w_hh.shape)}"
        )
    hidden_size, outputs = rows // count, found[0].w_hh.shape[1]
    size = sum(weight is not None for weight in found[0])
    for index, cell in enumerate(found):
        inputs = input.shape[-1] if index < directions else outputs * directions
        projected = cell.w_hr is not None
        wanted = {
            "w_ih": (rows, inputs),
            "w_hh": (rows, outputs if projected else hidden_size),
            "b_ih": (rows,),
            "b_hh": (rows,),
            "w_hr": (outputs, hidden_size),
        }
        place = index * size
        for name, weight in zip(CellWeights._fields, cell, strict=True):
            if weight is None:
                continue
            if weight.dtype != input.dtype or weight.device != input.device:
                raise TypeError(
                    f"{of}: weights[{place}]: expected input's dtype and device, {input.dtype} on "
                    f"{input.device}, got {weight.dtype} on {weight.device}; convert one of them"
                )
            if tuple(weight.shape) != wanted[name]:
                raise ValueError(
                    f"{of}: weights[{place}] ({name} of layer {index // directions}): expected "
                    f"{list(wanted[name])}, got {list(weight.shape)}"
                )
            place += 1


def check_state(of: str, name: str, state: Tensor, input: Tensor, wanted: tuple[int, ...]) -> None:
    """Raise where a state is not a tensor like the input, of the wanted shape."""
    arguments.tensor(of, name, state)
    if state.dtype != input.dtype or state.device != input.device:
        raise TypeError(
            f"{of}: {name}: expected input's dtype and device, {input.dtype} on {input.device}, "
            f"got {state.dtype} on {state.device}; convert it with .to(input)"
        )
    if tuple(state.shape) != wanted:
        raise ValueError(f"{of}: {name}: expected shape {list(wanted)}, got {list(state.shape)}")


def check_lengths_form(of: str, lengths: Tensor, batch: int) -> None:
    """Raise where lengths are not int64 [B] on the CPU."""
    arguments.tensor(of, "lengths", lengths, dims=1, dtypes=(torch.int64,), shape="[B]")
    if not lengths.is_cpu:
        raise ValueError(
            f"{of}: lengths: expected a tensor on the CPU, as torch's packed sequences have, got "
            f"{lengths.device}; call lengths.cpu()"
        )
    if lengths.shape[0] != batch:
        raise ValueError(f"{of}: lengths: expected shape [{batch}], got {list(lengths.shape)}")
