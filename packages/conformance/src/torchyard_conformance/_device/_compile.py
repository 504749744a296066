"""torch.compile's default backend on a device."""

from __future__ import annotations

import torch

from torchyard_conformance._device._model import compare, gradients, pair
from torchyard_conformance._outcome import violated
from torchyard_conformance._torch_compat import generated_kernels

__all__ = ["check_compile"]


def check_compile(device: str) -> None:
    """Compile a block's forward and backward, and hold them against the CPU's.

    Raises:
        Violated: it cannot be compiled, no kernel was generated, or a result differs.
    """
    host, module, x = pair(device)
    before = generated_kernels()
    try:
        compiled = torch.compile(module, fullgraph=True)
        out = compiled(x.to(device))
        out.square().sum().backward()
    except Exception as error:
        violated(f"expected a compiled block, got {type(error).__name__}: {error}"[:600])
    if generated_kernels() == before:
        violated("expected Inductor to generate kernels, it generated none")
    expected = host(x)
    expected.square().sum().backward()
    compare("the compiled forward", out, expected)
    wanted = gradients(host)
    for name, gradient in gradients(module).items():
        compare(f"the compiled gradient of {name}", gradient, wanted[name])
