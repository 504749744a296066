"""Blocks that repeat: modules of one kind, side by side."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from torch import nn

__all__ = ["repeated_blocks"]


def repeated_blocks(model: nn.Module, least: int) -> dict[Any, list[tuple[str, nn.Module]]]:
    """Return blocks by kind, outermost first: what is inside of a block is part of it.

    Blocks are of one kind where their classes are, and the names, shapes and dtypes of all that
    they hold. Lists of blocks are looked into, and are no blocks themselves.

    Args:
        model: to look into.
        least: how many of a kind there must be.
    """
    kinds: dict[Any, list[tuple[str, nn.Module]]] = defaultdict(list)
    for name, module in _candidates(model):
        kinds[_kind(module)].append((name, module))
    chosen = {kind: found for kind, found in kinds.items() if len(found) >= least}
    inside = [name for found in chosen.values() for name, _ in found]
    return {
        kind: kept
        for kind, found in chosen.items()
        if len(kept := [(n, m) for n, m in found if not _is_within(n, inside)]) >= least
    }


def _candidates(model: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    for name, module in model.named_modules():
        # A module without children is an operation, and no block.
        if name and any(True for _ in module.children()) and not _is_list(module):
            yield name, module


def _is_list(module: nn.Module) -> bool:
    return type(module) in (nn.ModuleList, nn.ModuleDict, nn.Sequential)


def _is_within(name: str, blocks: list[str]) -> bool:
    return any(name != other and name.startswith(f"{other}.") for other in blocks)


def _kind(module: nn.Module) -> Any:
    tensors = tuple(
        (name, tuple(tensor.shape), tensor.dtype)
        for name, tensor in (*module.named_parameters(), *module.named_buffers())
    )
    inner = tuple((name, type(child)) for name, child in module.named_modules())
    return type(module), inner, tensors
