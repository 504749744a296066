"""The backward kernels under Triton's interpreter are as near to float64 as naive gradients."""

from __future__ import annotations

import pytest
import torch

from packages.attention.tests.attention_calls import CALLS, call_of
from torchyard_attention.reference import reference_forward
from torchyard_attention.tolerance import GradientRuler, report
from torchyard_triton.attention import Tiles, backward
from torchyard_triton.attention._captured import sum_by_place

_TILES = Tiles(rows=32, keys=32)


# Every second call, and by the sweep all.
_CALLS = [
    pytest.param(name, marks=[pytest.mark.sweep] if place % 2 else [])
    for place, name in enumerate(CALLS)
]


@pytest.mark.parametrize("name", _CALLS)
def test_backward(name: str) -> None:
    call = call_of(name)
    result = reference_forward(call)
    assert result.lse is not None
    generator = torch.Generator().manual_seed(9)
    grad_out = torch.randn(result.out.shape, generator=generator).to(result.out.dtype)
    grad_lse = (
        torch.randn(result.lse.shape, generator=generator)
        if call.query.dtype == torch.float32
        else None
    )
    got = backward(call, result.out, result.lse, grad_out, grad_lse, tiles=_TILES)
    errors = GradientRuler(call, grad_out, grad_lse).compare(got)
    assert not (message := report(errors)), message


def test_sums_by_place_have_one_order() -> None:
    generator = torch.Generator().manual_seed(2)
    parts = torch.randn(1000, generator=generator)
    places = torch.randint(-1, 7, (1000,), generator=generator)
    wanted = torch.stack([parts[places == place].double().sum() for place in range(9)])
    torch.testing.assert_close(sum_by_place(parts, places, 9), wanted)
