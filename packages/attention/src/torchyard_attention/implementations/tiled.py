"""attention.tiled: every call of the contract, on any device, in torch operations on tiles."""

from __future__ import annotations

from typing import Final

from torchyard import Platform, ReasonCode, Verdict
from torchyard_attention.contract import AttentionRequest, Backward, Forward

__all__ = ["load", "load_backward", "supports"]

_DTYPES: Final = ("float16", "bfloat16", "float32", "float64")


def supports(request: AttentionRequest, platform: Platform) -> Verdict:
    """Accept everything but dtypes that no sum of products is defined for."""
    if request.dtype not in _DTYPES:
        return Verdict.no(
            ReasonCode.DTYPE,
            f"computes {', '.join(_DTYPES)}; got {request.dtype}",
            "cast the inputs",
        )
    return Verdict.yes("matrix products over visible tiles")


def load() -> Forward:
    """Return the forward."""
    from torchyard_attention.implementations._tiled_forward import tiled_forward

    return tiled_forward


def load_backward() -> Backward:
    """Return the backward."""
    from torchyard_attention.implementations._tiled_backward import tiled_backward

    return tiled_backward
