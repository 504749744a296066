"""cpu.onednn and cpu.native: recurrent layers by torch's oneDNN, and by native kernels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
from torchyard_kernels.contracts.recurrent import (
    FORWARD,
    Forward,
    RecurrentKind,
    RecurrentRequest,
)

__all__ = ["DEVICES", "DTYPES", "NAME", "supports", "supports_onednn", "torchyard_implementations"]

NAME: Final = "cpu.native"
DEVICES: Final = ("cpu",)
DTYPES: Final = ("float32", "bfloat16", "float16")
# What torch wants of a processor before it gives oneDNN a dtype.
_ONEDNN: Final[Mapping[str, frozenset[str]]] = {
    "float32": frozenset(),
    "bfloat16": frozenset({"avx512f", "avx512bw", "avx512vl", "avx512dq"}),
}
# Layers times directions.
_MOST_CELLS: Final = 256


def supports(request: RecurrentRequest, platform: Platform, *, isa: str = "") -> Verdict:
    """Say whether a native kernel serves the request.

    Args:
        request: the call.
        platform: the machine.
        isa: the instruction set to stay within, a key of ``_isa.FEATURES``; empty: the best that
            the machine has.
    """
    if request.device not in DEVICES:
        return Verdict.no(
            ReasonCode.DEVICE, f"expected tensors on {' or '.join(DEVICES)}, got {request.device}"
        )
    if request.dtype not in DTYPES:
        known = f"{', '.join(DTYPES[:-1])} and {DTYPES[-1]}"
        return Verdict.no(ReasonCode.DTYPE, f"computes {known}; got {request.dtype}")
    cells = request.num_layers * (2 if request.bidirectional else 1)
    if cells > _MOST_CELLS:
        return Verdict.no(
            ReasonCode.SHAPE, f"expected at most {_MOST_CELLS} layers and directions, got {cells}"
        )
    refused = _isa.refusal(isa, platform.cpu_features)
    if refused is not None:
        return refused
    return Verdict.yes(f"native kernel within {isa or _isa.best(platform.cpu_features)}")


def supports_onednn(request: RecurrentRequest, platform: Platform) -> Verdict:
    """Say whether torch gives the request to oneDNN, which no kernel here is faster than."""
    if request.device not in DEVICES:
        return Verdict.no(
            ReasonCode.DEVICE, f"expected tensors on {' or '.join(DEVICES)}, got {request.device}"
        )
    other = ""
    if request.kind is not RecurrentKind.LSTM:
        other = str(request.kind)
    elif not _ONEDNN.get(request.dtype, frozenset({request.dtype})) <= platform.cpu_features:
        other = f"{request.dtype} on this processor"
    elif request.ragged:
        other = "lstm with lengths"
    elif request.proj_size:
        other = "lstm with a projection"
    elif request.reserve:
        other = "lstm that records its own gradient"
    if other:
        return Verdict.no(
            ReasonCode.PURPOSE, f"stands for the lstm that torch gives oneDNN, which is no {other}"
        )
    return Verdict.yes("torch's own, by oneDNN")


@hookimpl
def torchyard_implementations(contract: str) -> Sequence[Implementation]:
    """Return the contract's implementations; native is held to TORCHYARD_CPU_ISA where set."""
    isa = plugin_setting("cpu", "isa")
    claims = frozenset({Claim.DETERMINISTIC})
    return [
        Implementation(FORWARD, "cpu.onednn", supports_onednn, _load_onednn),
        Implementation(
            FORWARD, NAME, partial(supports, isa=isa), partial(_load, isa), claims=claims
        ),
    ]


def _load(isa: str) -> Forward:
    from torchyard_cpu._recurrent_forward import NativeRecurrent

    return NativeRecurrent(isa)


def _load_onednn() -> Forward:
    from torchyard_cpu._recurrent_onednn import OnednnLstm

    return OnednnLstm()
