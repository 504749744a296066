"""cpu.native: the first k of each row by native selection."""

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
from torchyard_cpu import _isa
from torchyard_kernels.topk.contract import DTYPES, TOPK, TopKKernel, TopKRequest

__all__ = ["MAX_LENGTH", "NAME", "supports", "torchyard_implementations"]

NAME: Final = "cpu.native"
# Indices within a row are 32-bit while they are selected; a request's length is rounded up.
MAX_LENGTH: Final = 1 << 30

# The order is total: a result does not depend on how the work is cut.
_CLAIMS: Final = frozenset({Claim.DETERMINISTIC, Claim.BATCH_INVARIANT})


def supports(request: TopKRequest, platform: Platform, *, isa: str = "") -> Verdict:
    """Say whether a native selection supports the request.

    Args:
        request: the call.
        platform: the machine.
        isa: the instruction set to stay within, a key of ``_isa.feature_sets()``; empty: the best
            that the machine has.
    """
    if request.device != "cpu":
        return Verdict.no(ReasonCode.DEVICE, f"expected a tensor on cpu, got {request.device}")
    if request.dtype not in DTYPES:
        return Verdict.no(ReasonCode.DTYPE, f"orders {', '.join(DTYPES)}; got {request.dtype}")
    if request.length > MAX_LENGTH:
        return Verdict.no(
            ReasonCode.SHAPE, f"expected rows of at most {MAX_LENGTH}, got {request.length}"
        )
    refused = _isa.refusal(isa, platform.cpu_features)
    if refused is not None:
        return refused
    return Verdict.yes(f"native selection within {isa or _isa.best(platform.cpu_features)}")


@hookimpl
def torchyard_implementations(contract: str) -> Sequence[Implementation]:
    """Return the contract's one implementation, held to TORCHYARD_CPU_ISA where that is set."""
    if contract != TOPK:
        return []
    isa = plugin_setting("cpu", "isa")
    return [
        Implementation(TOPK, NAME, partial(supports, isa=isa), partial(_load, isa), claims=_CLAIMS)
    ]


def _load(isa: str) -> TopKKernel:
    from torchyard_cpu.topk._selection import NativeTopK

    return NativeTopK(isa)
