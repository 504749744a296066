"""cpu.native: attention forward and backward by native kernels."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Final

from torchyard import (
    Claim,
    Implementation,
    Platform,
    ReasonCode,
    Verdict,
    hookimpl,
    plugin_setting,
)
from torchyard_attention.contract import (
    BACKWARD,
    FORWARD,
    AttentionRequest,
    Backward,
    Forward,
    lacking_of_score,
    refused_sizes,
)
from torchyard_cpu import _isa

__all__ = [
    "DEVICES",
    "DTYPES",
    "MAX_HEAD_DIM",
    "NAME",
    "supports",
    "supports_backward",
    "torchyard_implementations",
]

NAME: Final = "cpu.native"
DEVICES: Final = ("cpu",)
DTYPES: Final = ("float32", "bfloat16", "float16")
MAX_HEAD_DIM: Final = 256

# Pieces of work depend on a head's own sizes alone, and partial sums are added in their order.
_CLAIMS: Final = frozenset({Claim.DETERMINISTIC, Claim.BATCH_INVARIANT})


def supports(request: AttentionRequest, platform: Platform, *, isa: str = "") -> Verdict:
    """Say whether a forward kernel supports the request.

    Args:
        request: the call.
        platform: the machine.
        isa: the instruction set to stay within, a key of ``_isa.feature_sets()``; empty: the best
            that the machine has.
    """
    verdict = _supports_sizes(request, platform, isa)
    if not verdict.supported:
        return verdict
    lacking = _lacking_of_score(request)
    if lacking:
        return Verdict.no(ReasonCode.SCORE_MOD, lacking)
    if not request.unit_stride:
        return Verdict.no(
            ReasonCode.LAYOUT,
            "expected query, key and value with a contiguous last dimension",
            "call contiguous() on them",
        )
    if request.page_size:
        return Verdict.yes(f"{verdict.text}, reads pages in place")
    return verdict


def supports_backward(request: AttentionRequest, platform: Platform, *, isa: str = "") -> Verdict:
    """Say whether a backward kernel supports the request. Arguments as for :func:`supports`."""
    verdict = _supports_sizes(request, platform, isa)
    lacking = _lacking_of_score(request) if verdict.supported else ""
    return Verdict.no(ReasonCode.SCORE_MOD, lacking) if lacking else verdict


def _supports_sizes(request: AttentionRequest, platform: Platform, isa: str) -> Verdict:
    """Judge what forward and backward have in common: device, dtype, sizes, instruction set."""
    if request.device not in DEVICES:
        return Verdict.no(
            ReasonCode.DEVICE, f"expected tensors on {' or '.join(DEVICES)}, got {request.device}"
        )
    refused = refused_sizes(request, DTYPES, MAX_HEAD_DIM)
    if refused is not None:
        return refused
    refused = _isa.refusal(isa, platform.cpu_features)
    if refused is not None:
        return refused
    return Verdict.yes(f"native kernel within {isa or _isa.best(platform.cpu_features)}")


def _lacking_of_score(request: AttentionRequest) -> str:
    return lacking_of_score(request, partial(_lacking_of_program, request))


def _lacking_of_program(request: AttentionRequest) -> str:
    from torchyard_cpu._programs.graph import UnsupportedProgramError
    from torchyard_cpu._programs.lowering import lower

    try:
        lower(request.score_text, request.score_captured)
    except UnsupportedProgramError as error:
        return f"score_mod: {error}, which the kernels do not compute"
    return ""


@hookimpl
def torchyard_implementations(contract: str) -> Sequence[Implementation]:
    """Return the contract's one implementation, held to TORCHYARD_CPU_ISA where that is set."""
    isa = plugin_setting("cpu", "isa")
    if contract == BACKWARD:
        answer = partial(supports_backward, isa=isa)
        load = partial(_load_backward, isa)
        return [Implementation(BACKWARD, NAME, answer, load, claims=_CLAIMS)]
    answer = partial(supports, isa=isa)
    return [Implementation(FORWARD, NAME, answer, partial(_load, isa), claims=_CLAIMS)]


def _load(isa: str) -> Forward:
    from torchyard_cpu.attention._forward import NativeForward

    return NativeForward(isa)


def _load_backward(isa: str) -> Backward:
    from torchyard_cpu.attention._backward import NativeBackward

    return NativeBackward(isa)
