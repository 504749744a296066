"""``fill``: give an ``out=`` tensor its values."""

from __future__ import annotations

from torch import Tensor

__all__ = ["fill"]


def fill(operator: str, out: Tensor, values: Tensor) -> Tensor:
    """Give an ``out=`` tensor some values, and their shape, and return it.

    Raises:
        RuntimeError: it is of another dtype.
    """
    if out.dtype != values.dtype:
        raise RuntimeError(
            f"{operator}: out: expected {values.dtype}, got {out.dtype}; make it of that dtype"
        )
    if out.shape != values.shape:
        out.resize_(values.shape)
    return out.copy_(values)
