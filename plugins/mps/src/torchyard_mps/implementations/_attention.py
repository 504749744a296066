"""Attention: verdicts on requests, and what computes them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from torchyard import Implementation, Platform, ReasonCode, Verdict
from torchyard_mps._family import supports_machine

if TYPE_CHECKING:
    from torchyard_attention.contract import AttentionCall, AttentionRequest, AttentionResult

__all__ = ["offered", "supports_backward", "supports_forward"]

# As the component's contract has them, which is imported where it is used alone.
_FORWARD: Final = "attention/1"
_BACKWARD: Final = "attention_backward/1"
_DTYPES: Final = ("float32", "bfloat16", "float16")
_MAX_HEAD_DIM: Final = 256
# What computes a mask or a score_mod without kernels of ours.
_OTHERS: Final = ("attention.flex", "attention.tiled")
# Positions are int, and products of them are offsets of masks' bits.
_MAX_LENGTH: Final = 2**20
_MAX_HEADS: Final = 2**20 - 1


def offered(contract: str) -> Sequence[Implementation]:
    """Return what computes a contract of attention; nothing of another contract."""
    if contract == _FORWARD:
        supports, load = supports_forward, _load_forward
    elif contract == _BACKWARD:
        supports, load = supports_backward, _load_backward
    else:
        return []
    return [Implementation(contract, "mps.metal", supports, load, before=_OTHERS)]


def supports_forward(request: AttentionRequest, platform: Platform) -> Verdict:
    """Say whether the kernel computes a request; a function of these arguments alone."""
    verdict = _verdict(request, platform, wanted=None)
    if verdict.supported and request.page_size:
        return Verdict.yes(f"{verdict.text}, reads pages in place")
    return verdict


def supports_backward(request: AttentionRequest, platform: Platform) -> Verdict:
    """Say whether the kernels compute the gradients; a function of these arguments alone."""
    wanted = tuple(number for number, flag in enumerate(request.captured_grad) if flag)
    verdict = _verdict(request, platform, wanted=wanted)
    if verdict.supported and request.page_size:
        return Verdict.no(
            ReasonCode.LAYOUT,
            f"reads contiguous keys, got pages of {request.page_size}",
            "attend to contiguous keys where gradients are wanted",
        )
    return verdict


def _verdict(
    request: AttentionRequest, platform: Platform, *, wanted: tuple[int, ...] | None
) -> Verdict:
    from torchyard_attention.contract import lacking_of_score, refused_sizes

    verdict = supports_machine(request.device, platform)
    if not verdict.supported:
        return verdict
    refused = refused_sizes(request, _DTYPES, _MAX_HEAD_DIM)
    if refused is not None:
        return refused
    longest, heads = max(request.q_length, request.kv_length), request.batch * request.q_heads
    if longest > _MAX_LENGTH or heads > _MAX_HEADS:
        return Verdict.no(
            ReasonCode.SHAPE,
            f"expected at most {_MAX_LENGTH} rows and keys and {_MAX_HEADS} heads of all batches, "
            f"got {longest} and {heads}",
        )
    lacking = lacking_of_score(request, partial(_lacking_of_program, request, wanted))
    return Verdict.no(ReasonCode.SCORE_MOD, lacking) if lacking else verdict


def _lacking_of_program(request: AttentionRequest, wanted: tuple[int, ...] | None) -> str:
    from torchyard_mps.attention import lacking_of_program

    return lacking_of_program(request.score_text, request.score_captured, wanted=wanted)


class _Forward:
    """The forward."""

    # Keys and values in the pages of a cache are read in place.
    reads_pages: Final = True

    def __call__(self, call: AttentionCall) -> AttentionResult:
        from torchyard_mps.attention import forward

        return forward(call)


def _load_forward() -> Any:
    return _Forward()


def _load_backward() -> Any:
    from torchyard_mps.attention import backward

    return backward
