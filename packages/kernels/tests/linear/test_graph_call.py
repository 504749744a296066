"""Nodes of graphs compute what ``linear`` does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from torchyard_kernels import linear
from torchyard_kernels.linear.contract import LINEAR
from torchyard_kernels.linear.graph_call import graph_call
from torchyard_programs import ProgramError


def _drawn(*shape: int, seed: int = 1) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def _with(arguments: Any, tensors: dict[int, Tensor]) -> Any:
    if isinstance(arguments, Tensor):
        return tensors[id(arguments)]
    if isinstance(arguments, (list, tuple)):
        return type(arguments)(_with(item, tensors) for item in arguments)
    return arguments


@pytest.mark.parametrize("bias", [None, _drawn(12, seed=3)])
@pytest.mark.parametrize(
    ("before", "after"),
    [
        (None, None),
        (lambda x, scale: x * 0.5, None),
        (None, lambda y, scale: torch.relu(y) + scale),
        (lambda x, scale: x.tanh(), lambda y, scale: scale - y),
    ],
)
def test_a_node_computes_what_linear_does(
    before: Callable[..., Tensor] | None, after: Callable[..., Tensor] | None, bias: Tensor | None
) -> None:
    real = [_drawn(2, 3, 8), _drawn(12, 8, seed=2), _drawn(2, 3, 12, seed=4), bias]
    metas = [None if item is None else item.to("meta") for item in real]

    def of(tensors: list[Any]) -> dict[str, Any]:
        x, weight, scale, bias = tensors
        functions = {
            "prologue": before and (lambda value: before(value, scale)),
            "epilogue": after and (lambda value: after(value, scale)),
        }
        return {"x": x, "weight": weight, "bias": bias, **functions}

    call = graph_call(**of(metas))
    tensors = {id(m): r for m, r in zip(metas, real, strict=True) if r is not None}
    torch.testing.assert_close(call.op(*_with(call.arguments, tensors)), linear(**of(real)))
    assert call.dtype == torch.float32
    request: Any = call.requests[LINEAR]
    assert (request.rows, request.outputs, request.depth) == (6, 12, 8)
    assert bool(request.epilogue) == (after is not None)


def test_what_is_no_pointwise_function_is_refused() -> None:
    x, weight = torch.empty(3, 8, device="meta"), torch.empty(12, 8, device="meta")
    with pytest.raises(ProgramError, match="epilogue"):
        graph_call(x, weight, epilogue=lambda y: y.softmax(-1))
    with pytest.raises(ValueError, match="weight"):
        graph_call(x, torch.empty(12, 9, device="meta"))
