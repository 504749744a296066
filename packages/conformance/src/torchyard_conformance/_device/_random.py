"""Random numbers of a device."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from torchyard_conformance._device._model import compare
from torchyard_conformance._outcome import violated

__all__ = ["check_random"]

_DRAWS = 64


def check_random(device: str) -> None:
    """Draw random numbers again after each way to go back in their sequence.

    Raises:
        Violated: they differ, or those that follow do not.
    """

    def draw() -> torch.Tensor:
        return torch.rand(_DRAWS, device=device)

    torch.manual_seed(7)
    first = draw()
    if torch.equal(draw().cpu(), first.cpu()):
        violated("expected torch.rand to draw other numbers each time, it drew the same")
    torch.manual_seed(7)
    compare("torch.rand after torch.manual_seed", draw(), first.cpu())
    _check_states(device, draw)
    _check_generators(device)
    _check_checkpoint(device)


def _check_states(device: str, draw: Callable[[], torch.Tensor]) -> None:
    module: Any = getattr(torch, device)
    state = module.get_rng_state()
    expected = draw().cpu()
    module.set_rng_state(state)
    compare(f"torch.rand after torch.{device}.set_rng_state", draw(), expected)
    module.set_rng_state(state)
    with torch.random.fork_rng(device_type=device):
        draw()
    compare("torch.rand after torch.random.fork_rng", draw(), expected)


def _check_generators(device: str) -> None:
    generator = torch.Generator(device)
    if generator.device.type != device:
        violated(f"torch.Generator: expected one of {device}, got one of {generator.device}")

    def draw() -> torch.Tensor:
        return torch.empty(_DRAWS, device=device).normal_(generator=generator)

    generator.manual_seed(3)
    expected = draw().cpu()
    state = generator.get_state()
    following = draw().cpu()
    generator.manual_seed(3)
    torch.rand(1, device=device)
    compare("numbers of a generator that was seeded again", draw(), expected)
    generator.set_state(state)
    compare("numbers of a generator whose state was set", draw(), following)


def _check_checkpoint(device: str) -> None:
    """Compute a layer with dropout again in its backward pass: with other zeros, gradients differ.

    Where dropout kept an element, its gradient is the scale; the output says where.
    """
    x = torch.ones(_DRAWS, device=device, requires_grad=True)
    out = checkpoint(nn.functional.dropout, x, use_reentrant=False)
    (found,) = torch.autograd.grad(out.sum(), x)
    compare("the gradient of dropout under torch.utils.checkpoint", found, out.cpu())
