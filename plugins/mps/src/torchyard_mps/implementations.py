"""What this plugin computes of torchyard's contracts; nothing here imports torch before it must."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from torchyard import Implementation, Platform, ReasonCode, Verdict, hookimpl
from torchyard_mps._family import supports_machine

if TYPE_CHECKING:
    from torchyard_attention.contract import AttentionCall, AttentionRequest, AttentionResult

__all__ = ["supports_attention", "torchyard_implementations"]

# As the component's contract has it, which is imported where it is used alone.
_FORWARD: Final = "attention/1"
_DTYPES: Final = ("float32", "bfloat16", "float16")
_MAX_HEAD_DIM: Final = 256
# What computes a mask or a score_mod without kernels of ours.
_OTHERS: Final = ("attention.flex", "attention.tiled")
# Positions are int, and products of them are offsets of masks' bits.
_MAX_LENGTH: Final = 2**20
_MAX_HEADS: Final = 2**20 - 1


@hookimpl
def torchyard_implementations(contract: str) -> Sequence[Implementation]:
    """Return what this plugin offers for a contract."""
    if contract != _FORWARD:
        return []
    # Without a claim: what it computes is proved on a device.
    return [Implementation(contract, "mps.metal", supports_attention, _load, before=_OTHERS)]


def supports_attention(request: AttentionRequest, platform: Platform) -> Verdict:
    """Say whether the kernel computes a request; a function of these arguments alone."""
    from torchyard_attention.contract import lacking_of_score, refused_sizes

    verdict = supports_machine(request.device, platform)
    if not verdict.supported:
        return verdict
    refused = refused_sizes(request, _DTYPES, _MAX_HEAD_DIM)
    if refused is not None:
        return refused
    if request.page_size:
        return Verdict.no(ReasonCode.LAYOUT, "reads contiguous keys, got pages of a cache")
    longest, heads = max(request.q_length, request.kv_length), request.batch * request.q_heads
    if longest > _MAX_LENGTH or heads > _MAX_HEADS:
        return Verdict.no(
            ReasonCode.SHAPE,
            f"expected at most {_MAX_LENGTH} rows and keys and {_MAX_HEADS} heads of all batches, "
            f"got {longest} and {heads}",
        )
    lacking = lacking_of_score(request, partial(_lacking_of_program, request))
    return Verdict.no(ReasonCode.SCORE_MOD, lacking) if lacking else verdict


def _lacking_of_program(request: AttentionRequest) -> str:
    from torchyard_mps.attention import lacking_of_program

    return lacking_of_program(request.score_text, request.score_captured)


def _load() -> Any:
    from torchyard_mps._runner import run
    from torchyard_mps.attention import forward_launch

    def compute(call: AttentionCall) -> AttentionResult:
        launch, result = forward_launch(call)
        if 0 not in launch.groups:
            run(launch)
        return result

    return compute
