"""The plugin as the kernels in Triton see it."""

from __future__ import annotations

import re
from typing import Final

from torchyard import Accelerator
from torchyard_triton import Vendor

__all__ = ["DEVICE", "VENDOR", "arch_of"]

DEVICE: Final = "xpu"

# torch numbers architectures, and Triton's compiler names them: what the driver names the model
# says which it is. Others are not known to have the matrix instruction and block loads.
_MODELS: Final = (
    (re.compile(r"Data Center GPU Max"), "pvc"),
    (re.compile(r"Arc\(TM\) (Pro )?B\d+"), "bmg"),
    (re.compile(r"Arc\(TM\) 1[34]0V"), "lnl"),
)


def arch_of(accelerator: Accelerator) -> str:
    """Return ``pvc``, ``bmg`` or ``lnl``; of another model what torch says, for no kernel."""
    for pattern, name in _MODELS:
        if pattern.search(accelerator.name):
            return name
    return accelerator.architecture


def _current() -> str:
    import torch

    facts = torch.xpu.get_device_properties(torch.xpu.current_device())
    return arch_of(Accelerator(DEVICE, "", str(facts.name)))


VENDOR: Final = Vendor("xpu", DEVICE, "xpu", _current, arch_of)
