"""A Python number in the place of a tensor, as a tensor with which an operator computes the same.

In ``x * 0.5`` torch's operator takes two tensors; the number becomes one that counts less when the
dtype of the result is found. torch has no way to make such a tensor from Python.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypeAlias

import torch
from torch import Tensor

__all__ = ["Number", "tensor_of"]

Number: TypeAlias = bool | int | float | complex

# What torch holds a number as.
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
        others: the call's tensors; the operator's dtype follows from all of them, as of any
            pointwise operator (``torch.result_type``).

    Returns:
        None where there is none, or none is certain.
    """
    whole = torch.tensor(number, dtype=_WHOLE[type(number)])
    # With dimensions and of as wide a kind, a tensor alone decides on the dtype.
    settled = any(t.dim() and _kind(t.dtype) >= _kind(whole.dtype) for t in others)
    wanted = {torch.result_type(tensor, number) for tensor in others}
    if len(wanted) == 1:
        (dtype,) = wanted
        settled = settled or {torch.result_type(tensor, whole) for tensor in others} == wanted
        # What is rounded here is not rounded in every replay. Of narrow tensors operators compute
        # in a wider dtype, and of integers some in real numbers, and begin with all the digits.
        if dtype in _ROUNDED:
            rounded = whole.to(dtype)
            if settled or (len(others) == 1 and torch.result_type(others[0], rounded) is dtype):
                return rounded
    return whole if settled else None


def _kind(dtype: torch.dtype) -> int:
    """Return the place of a dtype's kind among booleans, integers, reals and complex numbers."""
    if dtype is torch.bool:
        return 0
    return 3 if dtype.is_complex else 2 if dtype.is_floating_point else 1
