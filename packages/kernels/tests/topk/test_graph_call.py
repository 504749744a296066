"""Nodes of graphs select what ``topk`` does."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from torchyard_kernels import topk
from torchyard_kernels.topk.contract import TOPK
from torchyard_kernels.topk.graph_call import graph_call


@pytest.mark.parametrize("largest", [False, True])
@pytest.mark.parametrize("dim", [0, -1, 1])
def test_a_node_selects_what_topk_does(dim: int, largest: bool) -> None:
    x = torch.randn(9, 8, 7, generator=torch.Generator().manual_seed(1))
    meta = x.to("meta")
    call = graph_call(meta, 3, dim, largest=largest)
    assert call.arguments[0] is meta
    found = call.op(x, *call.arguments[1:])
    for ours, theirs in zip(found, topk(x, 3, dim, largest), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=0)
    request: Any = call.on("cpu").requests[TOPK]
    assert (request.device, request.k, request.largest) == ("cpu", 3, largest)
