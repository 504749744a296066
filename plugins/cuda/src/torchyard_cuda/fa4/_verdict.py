"""What FlashAttention-4 takes, as verdicts. Read from flash_attn.cute.interface of 4.0.0b36."""

from __future__ import annotations

from collections.abc import Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from torchyard import Platform, ReasonCode, Verdict
from torchyard_attention.contract import AttentionRequest, MaskKind, ScoreKind
from torchyard_cuda._capability import accelerator_of, capability, refused_machine
from torchyard_cuda.fa4._known import install_command, known

if TYPE_CHECKING:
    from torchyard_programs import Traits

__all__ = ["BLOCKS", "supports", "supports_block_mask", "supports_without_blocks"]

_DTYPES: Final = ("float16", "bfloat16")
_OTHERS: Final = "cuda.triton and attention.tiled compute it"
# By the GPU's generation: the rows of which a mask's blocks have a multiple, and their keys, as
# tiles of heads up to _LARGEST_MASKED need them.
BLOCKS: Final = MappingProxyType({9: (128, 128), 10: (256, 128)})
_LARGEST_MASKED: Final = 128
_HOPPER: Final = (9, 0)
_BLACKWELL: Final = 10
# flash_bwd_sm90.py takes rows for those of packed heads, which its backward never packs: a program
# reads h and q of other elements, and captured tensors beyond their ends.
_MISREAD: Final = frozenset({"h", "q"})


def supports(request: AttentionRequest, platform: Platform, *, backward: bool) -> Verdict:
    """Say whether FlashAttention-4 computes a request's outputs, or its gradients.

    A call of training has its outputs from here where another implementation has its gradients.
    """
    # Its kernels for older GPUs, and for sm_120, take no program in the backward, or none at all.
    refused = refused_machine(request.device, platform, _HOPPER, (10, 9))
    if refused is not None:
        return refused
    return (
        _library(platform)
        or _call(request, backward=backward)
        or _heads(request, platform, backward=backward)
        or _program(request, platform, backward=backward)
        or _mask(request, platform, backward=backward)
        or Verdict.yes(
            f"FlashAttention-4 {platform.library('flash-attn-4')}, compiled when first used"
        )
    )


def supports_without_blocks(
    request: AttentionRequest, platform: Platform, *, backward: bool
) -> Verdict:
    """As :func:`supports`, of calls without a block mask: those that lists may name."""
    if request.mask is MaskKind.BLOCKS:
        return Verdict.no(
            ReasonCode.MASK,
            "has block masks as cuda.fa4_blocks, which ran on no GPU yet and is in no list",
            "TORCHYARD_ENLIST=cuda.fa4_blocks",
        )
    return supports(request, platform, backward=backward)


def supports_block_mask(
    request: AttentionRequest, platform: Platform, *, backward: bool
) -> Verdict:
    """As :func:`supports`, of calls with a block mask alone."""
    if request.mask is not MaskKind.BLOCKS:
        return Verdict.no(
            ReasonCode.MASK, f"computes block masks, got {request.mask}", "use cuda.fa4"
        )
    return supports(request, platform, backward=backward)


def _library(platform: Platform) -> Verdict | None:
    found = platform.library("flash-attn-4")
    if found is None:
        return Verdict.no(ReasonCode.DEPENDENCY, "flash-attn-4 is not installed", install_command())
    if found not in known():
        return Verdict.no(
            ReasonCode.VERSION,
            f"its private functions change with every beta; read were those of "
            f"{', '.join(known())}, got {found}",
            install_command(),
        )
    if platform.library("triton") is None:
        return Verdict.no(
            ReasonCode.DEPENDENCY,
            "flash-attn-4 imports triton, which is not installed",
            "install the Triton that torch's installation names",
        )
    return None


def _call(request: AttentionRequest, *, backward: bool) -> Verdict | None:
    if request.dtype not in _DTYPES:
        return Verdict.no(
            ReasonCode.DTYPE, f"computes {' and '.join(_DTYPES)}; got {request.dtype}", _OTHERS
        )
    if request.dropout:
        return Verdict.no(ReasonCode.DROPOUT, "drops no weights", "use attention.tiled")
    if request.page_size:
        return Verdict.no(ReasonCode.LAYOUT, "is given contiguous keys, got pages", _OTHERS)
    if request.max_scores:
        return Verdict.no(ReasonCode.OUTPUT, "does not return max_scores", _OTHERS)
    if request.deterministic and backward and request.score is not ScoreKind.NONE:
        return Verdict.no(
            ReasonCode.DETERMINISM,
            "its deterministic gradients were not tried with a score_mod",
            _OTHERS,
        )
    for name in ("batch", "q_length", "kv_length"):
        if getattr(request, name) == 0:
            return Verdict.no(ReasonCode.SHAPE, f"needs sizes above 0, got {name} 0", _OTHERS)
    return None


def _heads(request: AttentionRequest, platform: Platform, *, backward: bool) -> Verdict | None:
    sizes = request.head_dim, request.value_dim
    small = min(sizes) >= 8 and max(sizes) <= 128
    if sizes[0] % 8 or sizes[1] % 8:
        text = f"head sizes must be multiples of 8, got {sizes}"
    elif _generation(platform) == _BLACKWELL:
        if small or sizes == (192, 128):
            return None
        if sizes == (256, 256) and request.score is ScoreKind.NONE:
            return None
        text = (
            f"on sm_10x takes heads up to 128, (192, 128), and (256, 256) without a score_mod; "
            f"got {sizes}"
        )
    elif backward and max(sizes) > 192:
        text = f"its gradients on sm_90 are for heads up to 192, got {sizes}"
    elif backward and request.q_heads != request.kv_heads and sizes[0] != sizes[1]:
        text = f"its gradients on sm_90 share key heads where head_dim is value_dim, got {sizes}"
    elif min(sizes) >= 8 and max(sizes) <= 256:
        return None
    else:
        text = f"on sm_90 takes heads from 8 to 256, got {sizes}"
    return Verdict.no(ReasonCode.HEAD_DIM, text, _OTHERS)


def _generation(platform: Platform) -> int | None:
    """Return the major number of the GPU's compute capability."""
    accelerator = accelerator_of(platform)
    found = None if accelerator is None else capability(accelerator)
    return None if found is None else found[0]


def _program(request: AttentionRequest, platform: Platform, *, backward: bool) -> Verdict | None:
    if request.score is ScoreKind.NONE:
        return None
    if request.score is not ScoreKind.POINTWISE or not request.score_text:
        return Verdict.no(
            ReasonCode.SCORE_MOD, f"takes programs, got a {request.score} score_mod", _OTHERS
        )
    if backward and any(request.captured_grad):
        return Verdict.no(
            ReasonCode.GRAD, "has no gradients of captured tensors", "use cuda.triton"
        )
    from torchyard_cuda.fa4._program import lower_score
    from torchyard_programs import UnsupportedProgramError

    try:
        program = lower_score(request.score_text, _traits(request.score_captured))
    except UnsupportedProgramError as error:
        return Verdict.no(ReasonCode.SCORE_MOD, f"score_mod: {error}", _OTHERS)
    shared = request.q_heads != request.kv_heads
    if backward and shared and program.inputs & _MISREAD and _generation(platform) == _HOPPER[0]:
        return Verdict.no(
            ReasonCode.SCORE_MOD,
            "its gradients on sm_90 give a score_mod another head's and row's numbers where query "
            f"heads share key heads; got {request.q_heads} on {request.kv_heads}, and a score_mod "
            "that reads h or q",
            "use cuda.triton",
        )
    return None


def _mask(request: AttentionRequest, platform: Platform, *, backward: bool) -> Verdict | None:
    """Judge a block mask: its program, and its lists by blocks of the kernels' sizes."""
    if request.mask is not MaskKind.BLOCKS:
        return None
    if not request.mask_text:
        return Verdict.no(
            ReasonCode.MASK,
            "takes a mask as a pointwise program, and of this one the bits alone are known",
            _OTHERS,
        )
    rows, keys = BLOCKS[_generation(platform) or _HOPPER[0]]
    if request.block_size[0] % rows or request.block_size[1] != keys:
        return Verdict.no(
            ReasonCode.MASK,
            f"follows blocks of a multiple of {rows} rows and {keys} keys, got "
            f"{request.block_size}",
            f"create_block_mask(..., BLOCK_SIZE=({rows}, {keys})); {_OTHERS}",
        )
    if max(request.head_dim, request.value_dim) > _LARGEST_MASKED:
        return Verdict.no(
            ReasonCode.HEAD_DIM,
            f"with a block mask takes heads up to {_LARGEST_MASKED}, got "
            f"{(request.head_dim, request.value_dim)}",
            _OTHERS,
        )
    if request.deterministic and backward:
        return Verdict.no(
            ReasonCode.DETERMINISM,
            "its deterministic gradients were not tried with a block mask",
            _OTHERS,
        )
    from torchyard_cuda.fa4._program import lower_mask
    from torchyard_programs import UnsupportedProgramError

    try:
        lower_mask(request.mask_text, _traits(request.mask_captured))
    except UnsupportedProgramError as error:
        return Verdict.no(ReasonCode.MASK, f"mask_mod: {error}", _OTHERS)
    return None


def _traits(captured: Sequence[tuple[str, int]]) -> Traits:
    import torch

    return tuple((getattr(torch, name), ndim) for name, ndim in captured)
