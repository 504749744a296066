"""Attention for the simulated device: what its plugin offers for the attention contracts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from torchyard import Implementation, Platform, ReasonCode, Verdict, hookimpl
from torchyard_attention.contract import BACKWARD, FORWARD, AttentionRequest, ScoreKind

__all__ = ["NAME", "supports", "torchyard_implementations"]

NAME: Final = "simulated.attention"

_DEVICE: Final = "simulated"
_DTYPES: Final = ("bfloat16", "float16", "float32", "float64")


def supports(request: AttentionRequest, platform: Platform) -> Verdict:
    """Accept every mask and every floating dtype; refuse modified scores."""
    if request.device != _DEVICE:
        return Verdict.no(ReasonCode.DEVICE, f"expected tensors on {_DEVICE}, got {request.device}")
    if request.score is not ScoreKind.NONE:
        return Verdict.no(
            ReasonCode.SCORE_MOD,
            f"expected unmodified scores, got a {request.score} score_mod",
            "attention.tiled computes modified scores on any device",
        )
    if request.dropout:
        return Verdict.no(
            ReasonCode.DROPOUT,
            "expected no dropout",
            "attention.tiled drops weights on any device",
        )
    if request.dtype not in _DTYPES:
        return Verdict.no(
            ReasonCode.DTYPE, f"expected one of {', '.join(_DTYPES)}, got {request.dtype}"
        )
    return Verdict.yes("tiles of queries and keys, online softmax")


@hookimpl
def torchyard_implementations(contract: str) -> Sequence[Implementation]:
    """Return the one implementation of the contract."""
    loaders: dict[str, Callable[[], Callable[..., Any]]] = {
        FORWARD: _load_forward,
        BACKWARD: _load_backward,
    }
    return [Implementation(contract, NAME, supports, loaders[contract])]


def _load_forward() -> Callable[..., Any]:
    from torchyard_simulated._attention_tiles import forward

    return forward


def _load_backward() -> Callable[..., Any]:
    from torchyard_simulated._attention_tiles import backward

    return backward
