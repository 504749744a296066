"""How the installed torch divides a gradient between equal numbers, of which either is taken."""

from __future__ import annotations

from functools import cache

import torch

from torchyard.torch_compat import without_modes

__all__ = ["divides_ties"]


@cache
def divides_ties() -> bool:
    """Return whether torch divides the gradients of fmax, fmin and clamp at ties.

    Where a value equals its bound, torch up to 2.13 gives the value all of it. From 2.14 on value
    and bound get a half each where the bound is a tensor, and neither gets any where it is a
    number. Of fmax and fmin the first argument got all of it, and now each gets a half. torch's
    notes on releases say so of no version, so it is tried.
    """
    with without_modes(), torch.inference_mode(mode=False), torch.enable_grad():
        x = torch.zeros(1, requires_grad=True)
        (found,) = torch.autograd.grad(torch.fmax(x, torch.zeros(1)).sum(), x)
        return bool(found.item() < 1)
