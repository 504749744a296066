"""``implementations``: these kernels as a vendor's implementations of contracts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from torchyard import Compilation, Implementation, Platform, ReasonCode, Verdict
from torchyard_triton._machine import supports_machine
from torchyard_triton._vendor import Vendor

if TYPE_CHECKING:
    from torchyard_attention.contract import AttentionCall, AttentionRequest, AttentionResult

__all__ = ["implementations", "supports_attention"]

# As the components' contracts have them, which are imported where they are used alone.
_FORWARD: Final = "attention/1"
_BACKWARD: Final = "attention_backward/1"
_LINEAR: Final = "linear/1"
_POINTWISE: Final = "pointwise/1"
_RECURRENT: Final = ("recurrent/1", "recurrent_backward/1")
_TOPK: Final = "topk/1"
# What computes the contracts on any device: where the kernels are enlisted, they come before it.
_PORTABLE: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        _FORWARD: ("attention.flex", "attention.tiled"),
        _BACKWARD: ("attention.flex", "attention.tiled"),
        _LINEAR: ("kernels.composed", "kernels.torch"),
        _POINTWISE: ("kernels.map",),
        _RECURRENT[0]: ("kernels.aten", "kernels.steps"),
        _RECURRENT[1]: ("kernels.steps",),
        _TOPK: ("kernels.sort",),
    }
)
_DTYPES: Final = ("float32", "bfloat16", "float16")
_MAX_HEAD_DIM: Final = 256


def implementations(contract: str, vendor: Vendor) -> Sequence[Implementation]:
    """Return the implementations of a contract that these kernels are on a vendor's device.

    They claim nothing: a claim is proved on the device. A list need not name them: where a user
    enlists them, they come before what computes the contract on any device.

    Args:
        contract: ``op/version``; empty for one that no kernel here computes.
        vendor: of the plugin that returns them from its hook.
    """
    before = _PORTABLE.get(contract, ())
    compilations = partial(_compilations, contract, vendor)
    return [
        replace(item, before=before, compilations=compilations)
        for item in _offered(contract, vendor)
    ]


def _compilations(contract: str, vendor: Vendor) -> Iterable[Compilation]:
    from torchyard_triton.compiled import compilations

    return compilations(contract, vendor)


def _offered(contract: str, vendor: Vendor) -> Sequence[Implementation]:
    if contract == _TOPK:
        from torchyard_triton.topk import offered as offered_topk

        return offered_topk(vendor)
    if contract == _LINEAR:
        from torchyard_triton.linear import offered as offered_linear

        return offered_linear(vendor)
    if contract == _POINTWISE:
        from torchyard_triton.pointwise import offered as offered_pointwise

        return offered_pointwise(vendor)
    if contract in _RECURRENT:
        from torchyard_triton.recurrent import offered as offered_recurrent

        return offered_recurrent(contract, vendor)
    if contract not in (_FORWARD, _BACKWARD):
        return []
    load = _load_forward if contract == _FORWARD else _load_backward
    return [
        Implementation(
            contract,
            f"{vendor.name}.triton",
            partial(supports_attention, vendor=vendor),
            partial(load, vendor),
        )
    ]


def supports_attention(request: AttentionRequest, platform: Platform, *, vendor: Vendor) -> Verdict:
    """Say whether the kernels compute a request; a function of these arguments alone.

    Args:
        request: the call, forward or backward.
        platform: the machine.
        vendor: whose device.
    """
    from torchyard_attention.contract import lacking_of_score, refused_sizes

    verdict = supports_machine(request.device, platform, vendor)
    if not verdict.supported:
        return verdict
    refused = refused_sizes(request, _DTYPES, _MAX_HEAD_DIM)
    if refused is not None:
        return refused
    verdict = _supports_sizes(request, platform, vendor, verdict)
    if not verdict.supported:
        return verdict
    lacking = lacking_of_score(request, partial(_lacking_of_program, request))
    if lacking:
        return Verdict.no(ReasonCode.SCORE_MOD, lacking)
    if request.page_size:
        return Verdict.yes(f"{verdict.text}, reads pages in place")
    return verdict


def _supports_sizes(
    request: AttentionRequest, platform: Platform, vendor: Vendor, verdict: Verdict
) -> Verdict:
    """Judge what indices and a launch's programs can count."""
    from torchyard_triton.attention._limits import beyond_limits, programs_of

    lengths = request.q_length, request.kv_length
    sizes = (request.batch, request.q_heads, lengths, request.block_size)
    lacking = beyond_limits(*sizes)
    if lacking:
        return Verdict.no(ReasonCode.SHAPE, lacking)
    accelerator = platform.accelerator(request.device)
    assert accelerator is not None
    architecture = vendor.architectures()[vendor.arch_of(accelerator)]
    programs = programs_of(*sizes)
    if programs > architecture.programs:
        return Verdict.no(
            ReasonCode.SHAPE,
            f"batch, heads and length: expected at most {architecture.programs} tiles on "
            f"{architecture.name}, got {programs}",
            "split the batch",
        )
    return verdict


def _lacking_of_program(request: AttentionRequest) -> str:
    """Return what the program of the request's score_mod needs and kernels lack."""
    import torch

    from torchyard_programs import UnsupportedProgramError
    from torchyard_triton.attention._launch import RANGES, SCORE_INPUTS
    from torchyard_triton.lowering import lower

    traits = tuple((getattr(torch, name), ndim) for name, ndim in request.score_captured)
    wanted = tuple(number for number, flag in enumerate(request.captured_grad) if flag)
    try:
        lower(
            request.score_text,
            SCORE_INPUTS,
            traits,
            name="score_mod",
            result="float32",
            derivatives=("s",) if request.grad or wanted else (),
            wanted=wanted,
            ranges=RANGES,
        )
    except UnsupportedProgramError as error:
        return f"score_mod: {error}, which the kernels do not compute"
    return ""


class _Forward:
    """The forward: calls of few rows, and those whose keys are in pages, have a kernel of theirs.

    Args:
        vendor: whose device.
    """

    # Keys and values in the pages of a cache are read in place.
    reads_pages: Final = True

    def __init__(self, vendor: Vendor) -> None:
        self._vendor = vendor

    def __call__(self, call: AttentionCall) -> AttentionResult:
        from torchyard_triton.attention import decode, decodes, forward
        from torchyard_triton.tuning import tiles_for

        few = call.pages is not None or decodes(call)
        kernel = "attention_decode" if few else "attention_forward"
        query = call.query
        sizes = query.shape[3], query.element_size()
        tiles = tiles_for(self._vendor.current(), kernel, *sizes)
        return decode(call, tiles=tiles) if few else forward(call, tiles=tiles)


def _load_forward(vendor: Vendor) -> Any:
    return _Forward(vendor)


def _load_backward(vendor: Vendor) -> Any:
    from torchyard_triton.attention import backward
    from torchyard_triton.attention._backward import PASSES
    from torchyard_triton.tuning import tiles_for

    def compute(call: Any, out: Any, lse: Any, grad_out: Any, grad_lse: Any) -> Any:
        architecture, query = vendor.current(), call.query
        sizes = query.shape[3], query.element_size()
        tiles = {name: tiles_for(architecture, name, *sizes) for name in PASSES}
        return backward(call, out, lse, grad_out, grad_lse, tiles=tiles)

    return compute
