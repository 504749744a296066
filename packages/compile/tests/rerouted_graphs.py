"""Compiled graphs in which attention and selection are rerouted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from torchyard_compile import CallSite, GraphReroute

__all__ = ["compiled", "drawn", "queries"]


def drawn(*shape: int, seed: int = 1, dtype: torch.dtype = torch.float32) -> Tensor:
    """Return a tensor of normal numbers, the same in every call."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def queries(*batch: int, dtype: torch.dtype = torch.float32) -> list[Tensor]:
    """Return query, key and value of 20 rows and 24 keys."""
    sizes = ((*batch, 20, 16), (*batch, 24, 16), (*batch, 24, 8))
    return [drawn(*shape, seed=seed, dtype=dtype) for seed, shape in enumerate(sizes)]


def compiled(
    function: Callable[..., Any], *args: Any, inner: Any = "eager"
) -> tuple[Any, tuple[CallSite, ...]]:
    """Return a compiled function's result, and what was found in its graph."""
    torch.compiler.reset()
    reroute = GraphReroute(inner)
    return torch.compile(function, backend=reroute, fullgraph=True)(*args), reroute.explain()
