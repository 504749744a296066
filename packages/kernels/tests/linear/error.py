"""How far from the float64 result a product may lie."""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["excess"]


def excess(out: Tensor, x: Tensor, weight: Tensor, bias: Tensor | None) -> float:
    """Return the greatest error over its bound; up to 1 passes.

    The bound is of first order: each of K products and sums in float32 (float64 for float64) may
    round once, relative to the sum of the products' magnitudes, and to the dtype that is stored the
    result rounds once, and so may the product before the bias is added.

    Args:
        out: [..., N]. x: [..., K]. weight: [N, K] or [B, N, K]. bias: [N].
    """
    wide = [torch.float64 if t.dtype != torch.float64 else t.dtype for t in (x, weight)]
    x64, weight64 = x.to(wide[0]), weight.to(wide[1])
    exact, size = x64 @ weight64.mT, x64.abs() @ weight64.abs().mT
    rounded = exact.abs()
    if bias is not None:
        exact, size = exact + bias.to(torch.float64), size + bias.abs().to(torch.float64)
        rounded = rounded + exact.abs()
    sums = torch.finfo(torch.float64 if x.dtype == torch.float64 else torch.float32)
    stored = torch.finfo(out.dtype)
    # Of the float64 reference's own roundings nothing is left beside those of the other dtypes.
    steps = x.shape[-1] + 2.0
    bound = steps * sums.eps * size + stored.eps / 2 * rounded + stored.smallest_normal
    error = (out.to(torch.float64) - exact).abs()
    if out.numel() == 0:
        return 0.0
    return float((error / bound).nan_to_num(nan=float("inf")).max())
