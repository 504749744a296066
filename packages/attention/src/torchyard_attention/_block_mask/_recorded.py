"""Mask functions: recorded as programs, and programs as mask functions."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass
from types import FunctionType
from typing import Any

import torch
from torch import Tensor

from torchyard_attention._mods._evaluate import scalar_function
from torchyard_attention._mods._trace import MASK_INPUTS, reads, trace

__all__ = [
    "MaskMod",
    "RecordedMask",
    "is_importable",
    "of_first",
    "record_mask",
    "show_everything",
]

MaskMod = Callable[[Any, Any, Any, Any], Any]


def record_mask(mask_mod: MaskMod, device: torch.device) -> tuple[str, list[Tensor]]:
    """Return a mask function's program and the tensors that it captures.

    Raises:
        ProgramError: it does something that cannot be recorded.
    """
    return trace(mask_mod, "mask_mod", MASK_INPUTS, torch.float32, device)


@dataclass(frozen=True, slots=True, eq=False)
class RecordedMask:
    """A mask function that was read back from its program.

    It replaces a function that cannot be stored, such as a lambda; its program can, as data.

    Attributes:
        text: the program.
        captured: its captured tensors.
    """

    text: str
    captured: tuple[Tensor, ...]

    def __call__(self, b: Tensor, h: Tensor, q_idx: Tensor, kv_idx: Tensor) -> Any:
        """Return whether a query sees a key, as any mask_mod."""
        return scalar_function(self.text)(None, b, h, q_idx, kv_idx, *self.captured)


def is_importable(mask_mod: Any) -> bool:
    """Return whether pickle can store a mask function by its name, without its code."""
    if isinstance(mask_mod, FunctionType):
        found: Any = sys.modules.get(mask_mod.__module__)
        for name in mask_mod.__qualname__.split("."):
            found = getattr(found, name, None)
        return found is mask_mod
    kind = type(mask_mod)
    if kind.__module__.partition(".")[0] != __name__.partition(".")[0]:
        return False
    # One of this package's: a class and what it holds.
    names = [field.name for field in fields(mask_mod)] if is_dataclass(mask_mod) else []
    held = [getattr(mask_mod, name) for name in names] or list(
        getattr(mask_mod, "__dict__", {}).values()
    )
    parts = [part for item in held for part in (item if isinstance(item, tuple) else (item,))]
    return all(is_importable(part) for part in parts if callable(part))


def of_first(text: str, kv_num_blocks: Tensor) -> tuple[bool, bool]:
    """Return whether a program reads the batch, and the head, where the lists have only one."""
    batch, heads = kv_num_blocks.shape[:2]
    return batch == 1 and reads(text, "b"), heads == 1 and reads(text, "h")


def show_everything(b: Any, h: Any, q_idx: Any, kv_idx: Any) -> bool:
    """Show every pair of the blocks that are listed."""
    return True
