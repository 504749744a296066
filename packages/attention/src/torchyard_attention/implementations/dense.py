"""attention.reference: the reference, offered as an implementation of last resort."""

from __future__ import annotations

from typing import Final

from torchyard import Platform, ReasonCode, Verdict
from torchyard_attention.contract import AttentionRequest, Backward, Forward

__all__ = ["DTYPES", "load", "load_backward", "supports"]

DTYPES: Final = ("float16", "bfloat16", "float32", "float64")


def supports(request: AttentionRequest, platform: Platform) -> Verdict:
    """Accept every floating dtype, on devices that have float64."""
    if request.dtype not in DTYPES:
        return Verdict.no(
            ReasonCode.DTYPE,
            f"computes {', '.join(DTYPES)}; got {request.dtype}",
            "cast the inputs",
        )
    if request.device == "mps":
        return Verdict.no(
            ReasonCode.DEVICE,
            "computes in float64, which device mps does not have",
            "move the inputs to cpu",
        )
    return Verdict.yes("float64, holds dense scores")


def load() -> Forward:
    """Return the forward."""
    from torchyard_attention.reference import reference_forward

    return reference_forward


def load_backward() -> Backward:
    """Return the backward."""
    from torchyard_attention.reference import reference_backward

    return reference_backward
