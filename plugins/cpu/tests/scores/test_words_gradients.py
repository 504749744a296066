"""The derivative of each word that kernels compute by several operations, against torch's."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from torchyard_attention.testing import make_call
from torchyard_cpu import _isa, _native
from torchyard_cpu._programs.composed import BINARY
from torchyard_cpu.attention._backward import NativeBackward
from torchyard_cpu.attention._forward import NativeForward

from .test_words import CLOSE, EXACT

ISAS = [
    isa
    for isa, needed in _isa.feature_sets().items()
    if needed <= frozenset(_native.cpu_features())
]
# Corners of every word are among these. hardswish has one that torch sees from the other side.
VALUES = torch.cat(
    [
        torch.arange(-40, 41) / 4,
        torch.linspace(-30, 30, 241),
        torch.tensor([2.0**e for e in range(-40, 7)]),
        torch.tensor([-(2.0**e) for e in range(-40, 7)]),
    ]
)


def native(function: Callable[..., Tensor], values: tuple[Tensor, ...], isa: str) -> list[Tensor]:
    """Return the gradients of a function's sum: of the log-sum-exps of rows with one key."""
    call = make_call(
        batch=1,
        q_heads=1,
        q_length=values[0].numel(),
        kv_length=1,
        head_dim=1,
        score_mod=lambda s, b, h, q, k: function(*(x[q] for x in values)) + 0 * s,
    )
    result = NativeForward(isa)(call)
    assert result.lse is not None
    # Of the weight, which is 1, nothing but the lse's gradient is left.
    got = NativeBackward(isa)(
        call, result.out, result.lse, torch.zeros_like(result.out), torch.ones_like(result.lse)
    )
    return [gradient for gradient in got.captured if gradient is not None]


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("word", sorted({**EXACT, **CLOSE}))
def test_the_derivative_of_a_word_is_that_of_torch(word: str, isa: str) -> None:
    function = {**EXACT, **CLOSE}[word]
    values = VALUES[VALUES.abs() != 3] if word == "hardswish" else VALUES
    inputs: tuple[Tensor, ...] = (values.repeat(2), torch.cat([values, values.flip(0)]))
    if word not in BINARY:  # else each value is paired with itself and another
        inputs = (values[function(values.double()).isfinite()],)
    leaves = [x.double().requires_grad_() for x in inputs]
    out = function(*leaves)
    expected: list[Tensor] = [torch.zeros_like(leaf) for leaf in leaves]
    if out.requires_grad:
        expected = list(torch.autograd.grad(out.sum(), leaves))

    got = native(function, inputs, isa)

    assert len(got) == len(expected)
    for ours, exact in zip(got, expected, strict=True):
        torch.testing.assert_close(ours.double(), exact, rtol=2e-5, atol=1e-6)
