"""A score_mod with a backward of its own is refused: eager, compiled, and after other calls."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from torchyard_attention import flex_attention
from torchyard_programs import ProgramError


class _Straight(torch.autograd.Function):
    """tanh whose backward lets the gradient through as it is."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.tanh()

    @staticmethod
    def backward(ctx: Any, *slopes: Tensor) -> Tensor:
        return slopes[0]


def _score(s: Tensor, b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Any:
    apply: Any = _Straight.apply
    return apply(s)


def _attention(query: Tensor) -> Any:
    return flex_attention(query, query, query, score_mod=_score)


def test_it_is_refused_also_after_calls_without_gradients() -> None:
    query = torch.randn(1, 2, 16, 8, requires_grad=True)
    with torch.no_grad():
        found = [_attention(query) for _ in range(4)]
    expected = (query @ query.mT / 8**0.5).tanh().softmax(-1) @ query
    torch.testing.assert_close(found[-1], expected.detach())
    with pytest.raises(ProgramError, match="score_mod: tanh is computed without gradients"):
        _attention(query)


@pytest.mark.parametrize("fullgraph", [True, False])
def test_compiled_graphs_refuse_it_by_name(fullgraph: bool) -> None:
    query = torch.randn(1, 2, 16, 8, requires_grad=True)
    torch.compiler.reset()
    compiled = torch.compile(_attention, backend="aot_eager", fullgraph=fullgraph)
    with pytest.raises(Exception, match="score_mod: tanh is computed without gradients"):
        compiled(query)


def test_compiled_graphs_without_gradients_compute_it() -> None:
    query = torch.randn(1, 2, 16, 8)
    torch.compiler.reset()
    compiled = torch.compile(_attention, backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(
        compiled(query), (query @ query.mT / 8**0.5).tanh().softmax(-1) @ query
    )
