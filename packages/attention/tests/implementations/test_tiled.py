"""attention.tiled: bounded memory, the same bits in every run, nothing captured is changed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from torchyard_attention.cases import MASKS
from torchyard_attention.implementations._tiled_backward import tiled_backward
from torchyard_attention.implementations._tiled_forward import tiled_forward
from torchyard_attention.testing import make_call, traced_score_mod


class Largest(TorchDispatchMode):
    """Notes the largest storage that any operation returns."""

    def __init__(self) -> None:
        super().__init__()
        self.elements = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for tensor in result if isinstance(result, tuple | list) else [result]:
            if isinstance(tensor, Tensor):
                size = tensor.untyped_storage().nbytes() // tensor.element_size()
                self.elements = max(self.elements, size)
        return result


@pytest.mark.parametrize("masked", [False, True], ids=["plain", "window"])
def test_no_tensor_grows_with_the_product_of_the_lengths(masked: bool) -> None:
    length = 2048
    q, k = torch.arange(length).unsqueeze(1), torch.arange(length)
    slopes = torch.tensor([0.5, 0.25])
    call = make_call(
        batch=1,
        q_heads=2,
        q_length=length,
        head_dim=16,
        visible=(q >= k) & (q - k < 300) if masked else None,
        score_mod=lambda score, b, h, q, k: score + slopes[h] * (k - q),
    )

    with Largest() as largest:
        result = tiled_forward(call)
        assert result.lse is not None
        tiled_backward(call, result.out, result.lse, torch.ones_like(result.out), None)

    # A tile of both heads is a sixteenth of their 2 * 2048 * 2048 scores.
    assert largest.elements <= 2 * length * length // 8


def test_gradients_have_the_same_bits_in_every_run_where_torch_is_told_so() -> None:
    call = make_call(q_length=300, visible=MASKS["window"](2, 4, 300, 300), score_mod=biased32())
    result = tiled_forward(call)
    assert result.lse is not None
    grad_out = torch.ones_like(result.out)

    torch.use_deterministic_algorithms(True)
    try:
        first, second = (
            tiled_backward(call, result.out, result.lse, grad_out, None) for _ in range(2)
        )
    finally:
        torch.use_deterministic_algorithms(False)

    assert torch.equal(first.query, second.query)
    assert torch.equal(first.key, second.key)
    assert torch.equal(first.value, second.value)
    assert all(map(torch.equal, first.captured, second.captured))


def biased32() -> Callable[..., Any]:
    """Return a score_mod whose table is read many times per element."""
    table = torch.linspace(-1.0, 1.0, 9)
    return lambda score, b, h, q, k: score + table[torch.clamp(q - k, -4, 4) + 4]


def test_a_score_mod_that_returns_what_it_captured_does_not_change_it() -> None:
    constant = torch.tensor(2.0)
    mod = traced_score_mod(lambda score, b, h, q, k: constant)
    call = replace(make_call(batch=1, q_heads=1, q_length=1), score_mod=mod)

    tiled_forward(call)

    assert constant.item() == 2.0
