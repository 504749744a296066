"""Pinned memory and saved tensors of a device."""

from __future__ import annotations

import io

import torch

from torchyard_conformance._device._model import compare
from torchyard_conformance._outcome import violated

__all__ = ["check_pinned", "check_serialisation"]


def check_pinned(device: str) -> None:
    """Copy between pinned host memory and a device without waiting.

    Raises:
        Violated: memory is not pinned where it was asked to be, or a value differs.
    """
    plain = torch.arange(1024.0)
    try:
        pinned = plain.pin_memory()
    except RuntimeError as error:
        violated(f"expected pinned memory, got {error}")
    if not pinned.is_pinned():
        violated("pin_memory: expected pinned memory, is_pinned() says False")
    if plain.is_pinned():
        violated("a plain tensor: expected is_pinned() to be False, it is True")
    x = pinned.to(device, non_blocking=True)
    back = torch.empty(1024).pin_memory()
    back.copy_(x * 2, non_blocking=True)
    torch.accelerator.synchronize()
    compare("a copy to the device and back", back, plain * 2)


def check_serialisation(device: str) -> None:
    """Save tensors of a device and load them there, and on the CPU.

    Raises:
        Violated: they come back on another device, with other values, or apart where they shared
            memory.
    """
    whole = torch.arange(12.0, device=device).reshape(3, 4)
    file = io.BytesIO()
    try:
        torch.save({"whole": whole, "part": whole.t()[1:]}, file)
    except RuntimeError as error:
        violated(f"expected tensors to be saved, got {error}")
    for target in (None, "cpu"):
        file.seek(0)
        loaded = torch.load(file, map_location=target, weights_only=True)
        for name, expected in (("whole", whole), ("part", whole.t()[1:])):
            got = loaded[name]
            wanted = target or device
            if got.device.type != wanted:
                violated(f"{name}: expected a tensor on {wanted}, got one on {got.device}")
            if got.stride() != expected.stride():
                violated(f"{name}: expected strides {expected.stride()}, got {got.stride()}")
            compare(name, got, expected.cpu())
        loaded["whole"].zero_()
        if loaded["part"].cpu().any():
            violated("expected tensors that shared memory to share it once loaded, they do not")
