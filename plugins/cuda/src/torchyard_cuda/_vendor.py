"""The plugin as the kernels in Triton see it."""

from __future__ import annotations

from typing import Final

from torchyard_cuda._capability import DEVICE
from torchyard_triton import Vendor

__all__ = ["VENDOR"]


def _current() -> str:
    import torch

    major, minor = torch.cuda.get_device_capability()
    return f"sm_{major}{minor}"


VENDOR: Final = Vendor("cuda", DEVICE, "cuda", _current)
