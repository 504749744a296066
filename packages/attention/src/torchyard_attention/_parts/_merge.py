"""Put together attention over parts of the keys."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

import torch
from torch import Tensor

from torchyard import arguments

_LSE_DTYPES: Final = (torch.float32, torch.float64)


def merge_states(
    outs: Sequence[Tensor] | Tensor, lses: Sequence[Tensor] | Tensor
) -> tuple[Tensor, Tensor]:
    """Return attention over all keys from attention over disjoint parts of them.

    Exact up to rounding, whatever the parts; an empty part (out 0, lse -inf) changes nothing.
    Sums are taken in the lses' dtype and outs are rounded once, at the end. Differentiable in
    both. Source: online softmax (arXiv 1805.02867), section 3.1.

    Args:
        outs: the parts' outputs, each [..., V]; a sequence, or stacked in dimension 0.
        lses: their log-sum-exps, natural logarithm, each [...] in float32 or float64; likewise.

    Returns:
        out [..., V] in outs' dtype and lse [...] in lses' dtype. A row that no part has a key
        for has out 0 and lse -inf.

    Raises:
        ValueError, TypeError: an argument does not fit; names it.
    """
    states, weights = _stacked("outs", outs), _stacked("lses", lses)
    if states.shape[:-1] != weights.shape:
        raise ValueError(
            f"merge_states: lses: expected shape {list(states.shape[:-1])}, that of outs without "
            f"the last dimension, got {list(weights.shape)}"
        )
    if not states.dtype.is_floating_point:
        raise TypeError(f"merge_states: outs: expected a floating point dtype, got {states.dtype}")
    if weights.device != states.device:
        raise ValueError(
            f"merge_states: lses: expected a tensor on {states.device}, as outs, got one on "
            f"{weights.device}"
        )
    if weights.dtype not in _LSE_DTYPES:
        raise TypeError(f"merge_states: lses: expected float32 or float64, got {weights.dtype}")
    # The result does not depend on the shift, so neither does its gradient.
    shift = weights.detach().amax(dim=0)
    shift = shift.masked_fill(shift == -math.inf, 0.0)
    shares = torch.exp(weights - shift)
    total = shares.sum(dim=0)
    empty = total == 0.0
    total = total.masked_fill(empty, 1.0)
    lse = (shift + total.log()).masked_fill(empty, -math.inf)
    unseen = (weights == -math.inf).unsqueeze(-1)
    mixed = states.to(weights.dtype).masked_fill(unseen, 0.0) * (shares / total).unsqueeze(-1)
    return mixed.sum(dim=0).to(states.dtype), lse


def _stacked(name: str, parts: Sequence[Tensor] | Tensor) -> Tensor:
    of = "merge_states"
    if isinstance(parts, Tensor):
        arguments.tensor(of, name, parts)
        if parts.ndim == 0 or parts.shape[0] == 0:
            raise ValueError(
                f"merge_states: {name}: expected at least one part, got shape {list(parts.shape)}"
            )
        return parts
    parts = arguments.sequence(
        of, name, parts, arguments.tensor, expected="a tensor or a list of tensors"
    )
    if not parts:
        raise ValueError(f"merge_states: {name}: expected at least one part, got none")
    first = parts[0]
    for position, part in enumerate(parts):
        if part.shape != first.shape or part.dtype != first.dtype:
            raise ValueError(
                f"merge_states: {name}[{position}]: expected {list(first.shape)} in "
                f"{first.dtype}, as the first part, got {list(part.shape)} in {part.dtype}"
            )
    return torch.stack(tuple(parts))
