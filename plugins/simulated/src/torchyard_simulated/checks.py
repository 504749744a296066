"""The plugin's own lines of ``torchyard doctor``."""

from __future__ import annotations

from collections.abc import Sequence

from torchyard import Check, CheckStatus, hookimpl
from torchyard_simulated._loading import (
    HOW_TO_ASK,
    DeviceLoadError,
    LoadState,
    is_asked_for,
    load,
    status,
)

__all__ = ["torchyard_checks"]

_NAME = "the simulated device computes"


@hookimpl
def torchyard_checks() -> Sequence[Check]:
    """Check that the device gives the CPU's results and gradients, where it is asked for."""
    if not is_asked_for():
        return [Check(_NAME, CheckStatus.UNVERIFIED, "nobody asked for the device", HOW_TO_ASK)]
    try:
        load()
    except DeviceLoadError as error:
        return [Check(_NAME, CheckStatus.FAIL, f"{error.reason}\n{status().traceback}", error.hint)]
    assert status().state is LoadState.LOADED
    import torch

    results = []
    for device in ("cpu", "simulated"):
        # A transposed view: a device that forgets strides gets this gradient wrong.
        x = torch.arange(6, dtype=torch.float32).reshape(2, 3).to(device).t().requires_grad_()
        y = (x * x).sum(dim=0).square().sum()
        (gradient,) = torch.autograd.grad(y, x)
        results.append((y.cpu(), gradient.cpu()))
    (y_cpu, gradient_cpu), (y_device, gradient_device) = results
    if torch.equal(y_cpu, y_device) and torch.equal(gradient_cpu, gradient_device):
        return [Check(_NAME, CheckStatus.PASS, "results and gradients equal the CPU's")]
    return [
        Check(
            _NAME,
            CheckStatus.FAIL,
            f"expected {gradient_cpu.tolist()}, got {gradient_device.tolist()}",
            "report this with the output of torchyard doctor",
        )
    ]
