"""quantize: a weight rounded to 8 or 4 bits."""

from __future__ import annotations

from typing import Final, Literal

import torch
from torch import Tensor

from torchyard import arguments
from torchyard_kernels.linear._weights.packed_weight import PackedWeight
from torchyard_kernels.linear.contract.quantised import GROUPS

_DTYPES: Final = (torch.float16, torch.bfloat16, torch.float32)

__all__ = ["quantize"]


def quantize(
    weight: Tensor,
    *,
    bits: Literal[8, 4],
    group_size: int | None = None,
    symmetric: bool = True,
    activation: Literal["int8"] | None = None,
) -> PackedWeight:
    """Return a weight rounded to 8 or 4 bits, for :func:`torchyard_kernels.linear`.

    No number of the weight changes by more than half of its scale: a 254th of the largest magnitude
    of its output with 8 bits, a 15th of that of its group with 4.

    Args:
        weight: [N, K], float16, bfloat16 or float32, finite.
        bits: of a number.
        group_size: 32, 64 or 128 consecutive products of an output with a common scale; 0: all of
            them; None: all with 8 bits, 64 with 4.
        symmetric: whether 0 is the middle of every group; False is possible with 4 bits only.
        activation: ``"int8"`` rounds each row of x to 8 bits too, with its own scale, for
            products of bytes; None multiplies x as it is.

    Raises:
        TypeError: not a floating point tensor.
        ValueError: another argument does not fit; the message names it.
    """
    of = "quantize"
    arguments.tensor(of, "weight", weight, dims=2, dtypes=_DTYPES, shape="[N, K]")
    if weight.is_meta:
        raise arguments.wrong_kind(
            of, "weight", "values", "none, on the meta device", "load the weights first"
        )
    bits = arguments.choice(of, "bits", bits, (8, 4))
    activation = arguments.choice(of, "activation", activation, ("int8", None))
    if group_size is not None:
        group_size = arguments.choice(
            of, "group_size", arguments.integer(of, "group_size", group_size), GROUPS
        )
    if not arguments.boolean(of, "symmetric", symmetric) and bits == 8:
        raise ValueError("quantize: symmetric: expected True with 8 bits, got False; pass bits=4")
    options = {"activation": 0 if activation is None else 8, "asymmetric": int(not symmetric)}
    if group_size is not None:
        options["group"] = group_size
    return PackedWeight(weight, f"int{bits}", **options)
