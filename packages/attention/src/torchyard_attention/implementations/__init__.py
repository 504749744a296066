"""The implementations of attention that need nothing but torch."""

from __future__ import annotations

from collections.abc import Sequence

from torchyard import Implementation, hookimpl
from torchyard_attention.contract import BACKWARD, FORWARD
from torchyard_attention.implementations import dense, flex, sdpa, tiled

__all__ = ["torchyard_implementations"]


@hookimpl
def torchyard_implementations(contract: str) -> Sequence[Implementation]:
    """Return what this plugin offers; imports no torch."""
    if contract == FORWARD:
        return [
            Implementation(FORWARD, "attention.sdpa", sdpa.supports, sdpa.load),
            Implementation(FORWARD, "attention.flex", flex.supports, flex.load),
            Implementation(FORWARD, "attention.tiled", tiled.supports, tiled.load),
            Implementation(FORWARD, "attention.reference", dense.supports, dense.load),
        ]
    if contract == BACKWARD:
        return [
            Implementation(BACKWARD, "attention.sdpa", sdpa.supports_backward, sdpa.load_backward),
            Implementation(BACKWARD, "attention.tiled", tiled.supports, tiled.load_backward),
            Implementation(BACKWARD, "attention.reference", dense.supports, dense.load_backward),
        ]
    return []
