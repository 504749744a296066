"""The kernels in Triton, as this plugin's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from torchyard import Implementation
from torchyard_cuda._capability import DEVICE
from torchyard_triton import Vendor, implementations

__all__ = ["VENDOR", "in_triton"]


def _current() -> str:
    import torch

    major, minor = torch.cuda.get_device_capability()
    return f"sm_{major}{minor}"


VENDOR: Final = Vendor("cuda", DEVICE, _current)


def in_triton(contract: str, before: Sequence[str]) -> list[Implementation]:
    """Return the kernels in Triton of a contract; none where there are none.

    No list names them, since none has run on a GPU: where they are enlisted, they come before
    the implementations that they are meant to replace.

    Args:
        contract: ``op/version``.
        before: names of implementations.
    """
    return [replace(item, before=tuple(before)) for item in implementations(contract, VENDOR)]
