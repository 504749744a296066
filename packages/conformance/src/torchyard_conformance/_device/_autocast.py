"""torch.autocast on a device."""

from __future__ import annotations

import torch

from torchyard_conformance._outcome import violated

__all__ = ["check_autocast"]


def check_autocast(device: str) -> None:
    """Multiply, sum and differentiate under autocast in bfloat16.

    Raises:
        Violated: a result has another dtype than torch's lists say, or a value differs.
    """
    weight = torch.full((4, 4), 0.5, device=device, requires_grad=True)
    x = torch.ones(4, 4, device=device)
    try:
        with torch.autocast(device, dtype=torch.bfloat16):
            product = x @ weight
            power = product.pow(2)
        power.sum().backward()  # type: ignore[no-untyped-call]
    except RuntimeError as error:
        violated(f"expected autocast to compute, got {error}")
    for what, got, expected in (
        ("a matrix product under autocast", product.dtype, torch.bfloat16),
        ("a power under autocast", power.dtype, torch.float32),
        ("a matrix product after autocast", (x @ weight).dtype, torch.float32),
    ):
        if got != expected:
            violated(f"{what}: expected {expected}, got {got}")
    gradient = weight.grad
    if gradient is None or gradient.dtype != torch.float32:
        violated(f"the weight's gradient: expected float32, got {gradient}")
    if gradient.cpu().tolist() != [[16.0] * 4] * 4:
        violated(f"the weight's gradient: expected 16, got {gradient.cpu().tolist()}")
