"""kthvalue, by sorting."""

from __future__ import annotations

from torch import Tensor

from torchyard_mps.operators.replacements._outputs import fill

__all__ = ["kthvalue_values"]


def kthvalue_values(
    self: Tensor, k: int, dim: int = -1, keepdim: bool = False, *, values: Tensor, indices: Tensor
) -> tuple[Tensor, Tensor]:
    """Give the k-th smallest element of each row; NaN is greater than all numbers.

    Args:
        self: of any shape and any real dtype.
        k: from 1.
        dim: what is a row.
        keepdim: whether that dimension stays, of size 1.
        values: output, of self's dtype.
        indices: output, int64; of equal elements the one that comes k-th in a stable order.

    Raises:
        RuntimeError: k is not in the row.
    """
    rows = self if self.dim() else self.unsqueeze(0)
    size = rows.shape[dim]
    if not 1 <= k <= size:
        raise RuntimeError(
            f"kthvalue: k: expected 1 to {size}, the size of dimension {dim}, got {k}"
        )
    ordered, places = rows.sort(dim=dim, stable=True)
    found = [part.narrow(dim, k - 1, 1) for part in (ordered, places)]
    if not self.dim() or not keepdim:
        found = [part.squeeze(dim) for part in found]
    return fill("kthvalue", values, found[0]), fill("kthvalue", indices, found[1])
