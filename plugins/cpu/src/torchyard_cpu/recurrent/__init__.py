"""cpu.torch and cpu.native: recurrent layers where torch's own are best, and native kernels."""

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
from torchyard_kernels.recurrent.contract import (
    FORWARD,
    Forward,
    RecurrentKind,
    RecurrentRequest,
)

__all__ = [
    "DEVICES",
    "DTYPES",
    "NAME",
    "TILED",
    "supports",
    "supports_torch",
    "torchyard_implementations",
]

NAME: Final = "cpu.native"
DEVICES: Final = ("cpu",)
DTYPES: Final = ("float32", "bfloat16", "float16")
# The features that torch requires before it dispatches a dtype to oneDNN.
_ONEDNN: Final[Mapping[str, frozenset[str]]] = {
    "float32": frozenset(),
    "bfloat16": frozenset({"avx512f", "avx512bw", "avx512vl", "avx512dq"}),
}
# Steps that take less time than packing their weights.
_BRIEF: Final = 4
# torch multiplies matrices of these an order of magnitude slower than others.
_SLOW: Final = ("float16",)
# What oneDNN multiplies faster than float32, and from how many sequences on that counts.
_NARROW: Final = ("bfloat16",)
_MANY: Final = 16
# The instruction set whose kernel keeps up with oneDNN's matrix tiles.
TILED: Final = "amx"
# Where oneDNN is ahead, since gates are most of the work: as many sequences, and states that are
# narrower, by vectors or by tiles.
_CROWD: Final = 64
_THIN: Final = 48
_THIN_BY_TILES: Final = 256
# Numbers of a state of all sequences from which on oneDNN's matrix tiles pay where no kernel has
# them: in the backward pass, and where kernels are held to less. Beyond it products are nearly all
# of an LSTM, and oneDNN's as good.
_MANY_NUMBERS: Final = 8192
# Layers times directions.
_MOST_CELLS: Final = 256


def supports(request: RecurrentRequest, platform: Platform, *, isa: str = "") -> Verdict:
    """Say whether a native kernel supports the request.

    Args:
        request: the call.
        platform: the machine.
        isa: the instruction set to stay within, a key of ``_isa.feature_sets()``; empty: the best
            that the machine has.
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


def supports_torch(request: RecurrentRequest, platform: Platform, *, isa: str = "") -> Verdict:
    """Say whether torch's own layers are the best there is for the request.

    They are for an LSTM that torch gives to oneDNN, where it trains, where gates are most of its
    work or products nearly all; where laying out weights for a few steps of other layers would
    cost more than the steps; and where many sequences train in bfloat16, whose gradients the
    recorded backward computes in float32.

    Args:
        request: the call.
        platform: the machine.
        isa: the instruction set that native kernels are held to; empty: the best that there is.
    """
    if request.device not in DEVICES:
        return Verdict.no(
            ReasonCode.DEVICE, f"expected tensors on {' or '.join(DEVICES)}, got {request.device}"
        )
    if request.ragged or request.reserve or request.proj_size:
        what = "has lengths" if request.ragged else "records its own gradient"
        return _for_others(f"a call that {'projects' if request.proj_size else what}")
    best = ""
    numbers = request.batch * request.hidden_size
    missing = _ONEDNN.get(request.dtype, frozenset({request.dtype})) - platform.cpu_features
    onednn = request.kind is RecurrentKind.LSTM and not missing
    tiled = request.dtype in _NARROW and _has_tiles(platform, isa)
    thin = request.hidden_size < (_THIN_BY_TILES if tiled else _THIN)
    outdone = (request.batch >= _CROWD and thin) or (not tiled and numbers > _MANY_NUMBERS)
    few = request.steps < _BRIEF
    # oneDNN lays out weights in every call.
    if onednn and (request.grad or outdone) and not (few and request.packed):
        best = "an lstm by oneDNN"
    brief = few and not request.packed and not onednn
    calls = request.steps * request.batch
    if brief and (request.dtype not in _SLOW or calls < _BRIEF):
        best = best or "few steps with weights as they are"
    if request.grad and request.dtype in _NARROW and request.batch >= _MANY:
        best = best or "training on many sequences"
    many = numbers >= _MANY_NUMBERS
    alone = _has_tiles(platform, "") and (request.grad or not _has_tiles(platform, isa))
    if request.dtype in _NARROW and many and alone:
        best = best or "many sequences by oneDNN's matrix tiles"
    if not best:
        return _for_others(f"{request.kind} in {request.dtype}")
    return Verdict.yes(f"torch's own: {best}")


def _has_tiles(platform: Platform, isa: str) -> bool:
    return (isa or _isa.best(platform.cpu_features)) == TILED


def _for_others(what: str) -> Verdict:
    return Verdict.no(
        ReasonCode.PURPOSE, f"computes calls for which torch's own layers are best; this is {what}"
    )


@hookimpl
def torchyard_implementations(contract: str) -> Sequence[Implementation]:
    """Return the contract's implementations; native is held to TORCHYARD_CPU_ISA where set."""
    isa = plugin_setting("cpu", "isa")
    claims = frozenset({Claim.DETERMINISTIC})
    return [
        Implementation(FORWARD, "cpu.torch", partial(supports_torch, isa=isa), _load_torch),
        Implementation(
            FORWARD, NAME, partial(supports, isa=isa), partial(_load, isa), claims=claims
        ),
    ]


def _load(isa: str) -> Forward:
    from torchyard_cpu.recurrent._forward import NativeRecurrent

    return NativeRecurrent(isa)


def _load_torch() -> Forward:
    from torchyard_cpu.recurrent._torch import TorchLayers

    return TorchLayers()
