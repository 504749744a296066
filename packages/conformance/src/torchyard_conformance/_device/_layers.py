"""Layers that torch computes by kernels of a device alone: convolutions and recurrent cells."""

from __future__ import annotations

import copy

import torch
from torch import nn

from torchyard_conformance._device._model import compare, gradients
from torchyard_conformance._outcome import violated

__all__ = ["check_layers"]


def check_layers(device: str) -> None:
    """Run layers forward, backward, and without gradients, beside the CPU.

    Raises:
        Violated: a layer cannot be computed, or a result or a gradient differs.
    """
    torch.manual_seed(0)
    sequence, image = torch.randn(5, 3, 4), torch.randn(2, 4, 6, 6)
    for module, x in (
        (nn.Conv1d(3, 6, 3, padding=1, groups=3), sequence),
        (nn.Conv2d(4, 3, 3, stride=2, bias=False), image),
        (nn.ConvTranspose2d(4, 3, 2, stride=2), image),
        (nn.LSTM(4, 3, num_layers=2, bidirectional=True), sequence),
        (nn.GRU(4, 3, batch_first=True), sequence),
        (nn.LSTMCell(4, 3, bias=False), sequence[0]),
        (nn.GRUCell(4, 3), sequence[0]),
    ):
        _check(module, x, device)


def _check(host: nn.Module, x: torch.Tensor, device: str) -> None:
    name = type(host).__name__
    there = copy.deepcopy(host).to(device)
    x = x.clone().requires_grad_()
    y = x.detach().to(device).requires_grad_()
    try:
        with torch.no_grad():
            compare(f"{name} without gradients", _outputs(there(y)), _outputs(host(x)))
        got, expected = _outputs(there(y)), _outputs(host(x))
        compare(name, got, expected)
        torch.autograd.backward(got.square().sum())
        torch.autograd.backward(expected.square().sum())
    except (NotImplementedError, RuntimeError) as error:
        violated(f"{name}: expected the device to compute it, got {error}")
    if x.grad is None or y.grad is None:
        violated(f"{name}: expected a gradient of its input, got None")
    compare(f"{name}: the gradient of its input", y.grad, x.grad)
    wanted = gradients(host)
    for parameter, gradient in gradients(there).items():
        compare(f"{name}: the gradient of {parameter}", gradient, wanted[parameter])


def _outputs(found: torch.Tensor | tuple[object, ...]) -> torch.Tensor:
    """Return all outputs of a layer as one tensor [N]."""
    if isinstance(found, torch.Tensor):
        return found.flatten()
    parts = [_outputs(part) for part in found if isinstance(part, torch.Tensor | tuple)]
    return torch.cat(parts)
