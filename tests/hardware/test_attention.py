"""flex_attention on an accelerator equals the reference in float64 on the CPU."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from torchyard_attention import create_block_mask, explain, flex_attention

_SHAPE = (2, 4, 200, 64)
_WINDOW = 48


def _causal(b: Any, h: Any, q_idx: Any, kv_idx: Any) -> Any:
    return q_idx >= kv_idx


def _window(b: Any, h: Any, q_idx: Any, kv_idx: Any) -> Any:
    return (q_idx >= kv_idx) & (q_idx - kv_idx < _WINDOW)


def _documents(device: str) -> Callable[..., Any]:
    """Return a mask that captures a tensor, which kernels that take programs read."""
    ids = torch.arange(_SHAPE[2], device=device) // 75
    return lambda b, h, q_idx, kv_idx: (ids[q_idx] == ids[kv_idx]) & (q_idx >= kv_idx)


def _inputs(dtype: torch.dtype, device: str) -> list[Tensor]:
    generator = torch.Generator().manual_seed(0)
    drawn = [torch.randn(_SHAPE, generator=generator).to(dtype) for _ in range(3)]
    return [tensor.to(device).requires_grad_() for tensor in drawn]


def _run(
    inputs: list[Tensor],
    mask_of: Callable[[str], Callable[..., Any]] | None,
    slopes: Tensor | None,
    **options: Any,
) -> list[Tensor]:
    """Return the output and the gradients, in float64 on the CPU."""
    length = _SHAPE[2]
    device = inputs[0].device.type
    mask = None
    if mask_of is not None:
        mask = create_block_mask(mask_of(device), None, None, length, length, device=device)

    def bias(score: Any, b: Any, h: Any, q_idx: Any, kv_idx: Any) -> Any:
        assert slopes is not None
        return score + slopes[h] * (kv_idx - q_idx)

    score_mod = None if slopes is None else bias
    query, key, value = inputs
    out = flex_attention(query, key, value, score_mod=score_mod, block_mask=mask, **options)
    leaves = [*inputs, *([] if slopes is None else [slopes])]
    found = [out, *torch.autograd.grad(out.sum(), leaves)]
    return [tensor.detach().double().cpu() for tensor in found]


@pytest.mark.parametrize("biased", [False, True], ids=["plain", "biased"])
@pytest.mark.parametrize(
    "mask_of",
    [None, lambda device: _causal, lambda device: _window, _documents],
    ids=["full", "causal", "window", "documents"],
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
def test_output_and_gradients_equal_the_reference(
    device: str,
    dtype: torch.dtype,
    mask_of: Callable[[str], Callable[..., Any]] | None,
    biased: bool,
) -> None:
    slopes = torch.linspace(0.01, 0.1, _SHAPE[1]) if biased else None
    on_device = None if slopes is None else slopes.to(device).requires_grad_()
    found = _run(_inputs(dtype, device), mask_of, on_device)
    in_float64 = [tensor.detach().double().requires_grad_() for tensor in _inputs(dtype, "cpu")]
    exact_slopes = None if slopes is None else slopes.double().requires_grad_()
    truth = _run(in_float64, mask_of, exact_slopes, implementation="attention.reference")
    for mine, right in zip(found, truth, strict=True):
        # Rounded inputs and outputs, and sums over at most a row's keys.
        allowed = 4 * torch.finfo(dtype).eps * math.sqrt(_SHAPE[2]) * float(right.abs().max())
        torch.testing.assert_close(mine, right, atol=allowed, rtol=0)


def test_the_decision_names_an_implementation_for_the_device(device: str) -> None:
    query, key, value = _inputs(torch.float16, device)
    decision = explain(query, key, value)
    assert decision.request.device == device
    assert decision.name
