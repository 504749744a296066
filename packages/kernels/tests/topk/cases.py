"""Rows that are hard to order, for the tests of every implementation of ``topk/1``."""

from __future__ import annotations

from typing import Final

import torch
from hypothesis import strategies as st
from torch import Tensor

from torchyard import ContractId, registry
from torchyard_kernels.topk.contract import DTYPES, TOPK, TopKCall, TopKKernel, TopKRequest

__all__ = ["IMPLEMENTATIONS", "SPECIAL", "kernel", "rows"]

# What this environment has besides the reference, which judges.
IMPLEMENTATIONS: Final = tuple(
    name for name in registry().order(ContractId.parse(TOPK), "cpu") if name != "kernels.reference"
)
SPECIAL: Final = (float("nan"), float("inf"), float("-inf"), 0.0, -0.0, 1.0, -1.0, 5e-324)


def kernel(name: str, call: TopKCall) -> TopKKernel:
    """Return an implementation by name, as the registry gives it for the call."""
    length = call.x.shape[-1]
    request = TopKRequest(
        device="cpu",
        dtype=str(call.x.dtype)[6:],
        rows=call.x.numel() // max(1, length),
        length=length,
        k=call.k,
        largest=call.largest,
        order=call.order,
        masked=call.mask is not None,
        segmented=call.offsets is not None,
    )
    return registry().resolve(TOPK, request, use=name)


@st.composite
def rows(draw: st.DrawFn, shape: tuple[int, ...]) -> Tensor:
    """Draw a tensor with many equal elements and, of floating point, all special ones."""
    dtype = getattr(torch, draw(st.sampled_from(DTYPES)))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**32)))
    if not dtype.is_floating_point:
        limits = torch.iinfo(dtype)
        spread = draw(st.sampled_from([1, 5, 120]))
        x = torch.randint(0, spread + 1, shape, generator=generator).to(dtype)
        ends = torch.rand(shape, generator=generator)
        x[ends < 0.05] = limits.min
        x[ends > 0.95] = limits.max
        return x
    x = torch.randn(shape, generator=generator)
    if draw(st.booleans()):
        x = x.round()
    x = x.to(dtype)
    special = torch.tensor(SPECIAL, dtype=torch.float64).to(dtype)
    # NaN with the sign set is as great as any other.
    special[0] = -special[0] if draw(st.booleans()) else special[0]
    share = draw(st.sampled_from([0.0, 0.1, 0.9]))
    chosen = torch.randint(0, len(SPECIAL), shape, generator=generator)
    return torch.where(torch.rand(shape, generator=generator) < share, special[chosen], x)
