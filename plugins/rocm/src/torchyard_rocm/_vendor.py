"""The plugin as the kernels in Triton see it."""

from __future__ import annotations

from typing import Final

from torchyard_triton import Vendor

__all__ = ["DEVICE", "VENDOR"]

# torch's type for AMD's GPUs, as for NVIDIA's.
DEVICE: Final = "cuda"


def _current() -> str:
    import torch

    # What follows a colon says which features are on, such as gfx942:sramecc+:xnack-.
    facts = torch.cuda.get_device_properties(torch.cuda.current_device())
    return str(facts.gcnArchName).partition(":")[0]


VENDOR: Final = Vendor("rocm", DEVICE, "hip", _current)
