"""The implementations of attention that need nothing but torch."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from torchyard import Implementation, Platform, Verdict, hookimpl
from torchyard_attention.contract import BACKWARD, FORWARD, AttentionRequest
from torchyard_attention.implementations import dense, flex, sdpa, tiled

__all__ = ["torchyard_implementations"]

_Supports = Callable[[AttentionRequest, Platform], Verdict]


@hookimpl
def torchyard_implementations(contract: str) -> Sequence[Implementation]:
    """Return what this plugin offers; imports no torch."""
    if contract == FORWARD:
        return [
            Implementation(FORWARD, "attention.sdpa", _gathering(sdpa.supports), sdpa.load),
            Implementation(FORWARD, "attention.flex", _gathering(flex.supports), flex.load),
            Implementation(FORWARD, "attention.tiled", _gathering(tiled.supports), tiled.load),
            Implementation(FORWARD, "attention.reference", _gathering(dense.supports), dense.load),
        ]
    if contract == BACKWARD:
        return [
            Implementation(BACKWARD, "attention.sdpa", sdpa.supports_backward, sdpa.load_backward),
            Implementation(BACKWARD, "attention.flex", flex.supports_backward, flex.load_backward),
            Implementation(BACKWARD, "attention.tiled", tiled.supports, tiled.load_backward),
            Implementation(BACKWARD, "attention.reference", dense.supports, dense.load_backward),
        ]
    return []


def _gathering(supports: _Supports) -> _Supports:
    """Return the same verdict; for a call with pages it adds that keys are copied first."""

    def answer(request: AttentionRequest, platform: Platform) -> Verdict:
        verdict = supports(request, platform)
        if not verdict.supported or not request.page_size:
            return verdict
        return Verdict.yes(f"{verdict.text}, after gathering the cache's pages")

    return answer
