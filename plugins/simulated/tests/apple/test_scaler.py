"""torch.amp.GradScaler on a device without its operators: steps and scales are those of the CPU."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

from plugins.simulated.tests.apple.stand_in import DEVICE, missing
from torchyard_mps.operators import register
from torchyard_mps.operators.replacements import REPLACEMENTS

_NAMES = ["GradScaler, unscale_", "GradScaler, update"]


@pytest.fixture(scope="module")
def ours(loaded_device: None) -> Iterator[None]:
    planted = [name for one in REPLACEMENTS if one.program in _NAMES for name in one.operators]
    with missing(*planted), register(DEVICE, operators=_NAMES) as registration:
        assert [one.registered for one in registration.replaced] == [True, True]
        yield


def _trained(device: str, dtype: torch.dtype) -> tuple[Tensor, list[float]]:
    """Return weights, and the scales of seven steps; the gradients of the third are infinite."""
    weight = torch.linspace(-1, 1, 8, dtype=dtype, device=device).requires_grad_()
    bias = torch.zeros((), dtype=torch.float32, device=device, requires_grad=True)
    optimizer = torch.optim.SGD([weight, bias], lr=0.1)
    scaler = torch.amp.GradScaler(device, init_scale=2.0**15, growth_interval=2)
    scales = []
    for step in range(7):
        optimizer.zero_grad()
        loss = ((weight.float() + bias) * 0.5).square().sum()
        scaler.scale(loss * (torch.inf if step == 2 else 1.0)).backward()
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_([weight, bias], 1.0)
        scaler.step(optimizer)
        scaler.update()
        scales.append(scaler.get_scale())
    return torch.cat([weight.detach().float(), bias.detach()[None]]).cpu(), scales


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_training_is_that_of_the_cpu(ours: None, dtype: torch.dtype) -> None:
    weights, scales = _trained(DEVICE, dtype)
    expected, wanted = _trained("cpu", dtype)
    assert scales == wanted
    assert scales[2] < scales[1] < scales[-1]
    torch.testing.assert_close(weights, expected, rtol=1e-5, atol=1e-5)


def test_a_scale_that_would_be_infinite_stays(ours: None) -> None:
    found = []
    for device in (DEVICE, "cpu"):
        scaler = torch.amp.GradScaler(device, init_scale=3e38, growth_interval=1)
        weight = torch.zeros(3, device=device, requires_grad=True)
        optimizer = torch.optim.SGD([weight], lr=0.1)
        scaler.scale(weight.sum() * 1e-3).backward()
        scaler.step(optimizer)
        scaler.update()
        found.append(scaler.get_scale())
    assert found[0] == found[1] == pytest.approx(3e38)
