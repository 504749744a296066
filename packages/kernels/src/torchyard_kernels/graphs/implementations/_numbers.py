"""Python numbers passed where an operator takes a tensor, as tensors that give the same bits.

In ``x * 0.5`` torch's operator takes two tensors; the number becomes a "wrapped number", which has
lower priority in type promotion. Python cannot create such a tensor.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypeAlias

import torch
from torch import Tensor

__all__ = ["Number", "tensor_of"]

Number: TypeAlias = bool | int | float | complex

# The dtype of a wrapped number.
_WHOLE: Final[dict[type, torch.dtype]] = {
    bool: torch.bool,
    int: torch.int64,
    float: torch.float64,
    complex: torch.complex128,
}

_ROUNDED: Final = (torch.float32, torch.float64, torch.complex64, torch.complex128)


def tensor_of(number: Number, others: Sequence[Tensor]) -> Tensor | None:
    """Return a tensor [] with which an operator gives the same bits as with a number.

    Args:
        number: an argument.
        others: the call's tensors; the operator's dtype follows from all of them, as for any
            pointwise operator (``torch.result_type``).

    Returns:
        None where no tensor is certain to give the same bits.
    """
    whole = torch.tensor(number, dtype=_WHOLE[type(number)])
    # A tensor with dimensions and of as wide a category determines the dtype alone.
    settled = any(t.dim() and _kind(t.dtype) >= _kind(whole.dtype) for t in others)
    wanted = {torch.result_type(tensor, number) for tensor in others}
    if len(wanted) == 1:
        (dtype,) = wanted
        settled = settled or {torch.result_type(tensor, whole) for tensor in others} == wanted
        # Rounding here saves rounding in every replay. For narrower dtypes operators compute in a
        # wider dtype, and for integers some compute in floating point, from the unrounded number.
        if dtype in _ROUNDED:
            rounded = whole.to(dtype)
            if settled or (len(others) == 1 and torch.result_type(others[0], rounded) is dtype):
                return rounded
    return whole if settled else None


def _kind(dtype: torch.dtype) -> int:
    """Return the rank of a dtype's category: boolean, integer, floating point or complex."""
    if dtype is torch.bool:
        return 0
    return 3 if dtype.is_complex else 2 if dtype.is_floating_point else 1
