"""What the installed torch has, for tests of what follows from it."""

from __future__ import annotations

import inspect
from functools import cache

import torch
from torch.nn.attention.flex_attention import create_block_mask

__all__ = ["compares_mask_fields", "graphs_name_sources"]


@cache
def graphs_name_sources() -> bool:
    """Return whether compiled code sees that it is compiled and not exported.

    Only then do graphs have the names of ops that follow from sources: not in torch 2.11, whose
    users clear torch's cache after an update, as docs/attention.md says.
    """

    def told(x: torch.Tensor) -> torch.Tensor:
        compiled = torch.compiler.is_compiling() and not torch.compiler.is_exporting()
        return x + 1 if compiled else x

    found = torch.compile(told, backend="eager", fullgraph=True)(torch.zeros(()))
    return bool(found == 1)


@cache
def compares_mask_fields() -> bool:
    """Return whether torch's create_block_mask makes the fields that were new in torch 2.13."""
    return "separate_full_blocks" in inspect.signature(create_block_mask).parameters
