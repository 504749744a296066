"""What torch's fused attention kernels take, as verdicts.

torch decides this inside of scaled_dot_product_attention, where nobody sees why a kernel was left
out. Read from torch's sdp_utils.cpp (2.13); the limits are facts of the request and the machine.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from torchyard import Platform, ReasonCode, Verdict
from torchyard_attention.contract import AttentionRequest, MaskKind, refused_programs
from torchyard_cuda._capability import (
    accelerator_of,
    capability,
    refused_machine,
    version_numbers,
)

__all__ = ["supports_cudnn", "supports_efficient", "supports_flash"]

_Gate = Callable[[AttentionRequest, Platform], Verdict | None]

_OTHERS: Final = "cuda.triton and attention.tiled compute it"
_HALF: Final = ("float16", "bfloat16")
_NEWEST: Final = (12, 1)
_HOPPER: Final = (9, 0)
_MOST_CUDNN: Final = 65535
# cuDNN's first version with attention as torch calls it, with heads of (192, 128), and beyond 128.
_CUDNN: Final = (9, 0)
_CUDNN_192: Final = (9, 11)
_CUDNN_256: Final = (9, 22, 1)


def supports_cudnn(request: AttentionRequest, platform: Platform) -> Verdict:
    """Say whether cuDNN's attention computes a request, forward or backward."""
    return _first(
        request,
        platform,
        _machine((8, 0)),
        _half,
        _plain,
        _cudnn_calls,
        _cudnn_library,
        _cudnn_head,
        _cudnn_decode,
    ) or Verdict.yes(f"cuDNN {platform.library('cudnn')}")


def supports_flash(request: AttentionRequest, platform: Platform) -> Verdict:
    """Say whether torch's FlashAttention-2 computes a request, forward or backward."""
    return _first(request, platform, _machine((8, 0)), _half, _plain, _flash_head) or Verdict.yes(
        "FlashAttention-2, as torch brings it"
    )


def supports_efficient(request: AttentionRequest, platform: Platform) -> Verdict:
    """Say whether torch's memory-efficient attention computes a request, forward or backward."""
    return _first(
        request, platform, _machine((5, 0)), _efficient_dtype, _plain, _efficient_calls
    ) or Verdict.yes("memory-efficient attention by CUTLASS, as torch brings it")


def _first(request: AttentionRequest, platform: Platform, *gates: _Gate) -> Verdict | None:
    return next(filter(None, (gate(request, platform) for gate in gates)), None)


def _machine(oldest: tuple[int, int]) -> _Gate:
    return lambda request, platform: refused_machine(request.device, platform, oldest, _NEWEST)


def _half(request: AttentionRequest, platform: Platform) -> Verdict | None:
    if request.dtype in _HALF:
        return None
    return Verdict.no(
        ReasonCode.DTYPE, f"computes {' and '.join(_HALF)}; got {request.dtype}", "cast the inputs"
    )


def _plain(request: AttentionRequest, platform: Platform) -> Verdict | None:
    """Refuse what none of these kernels computes."""
    return refused_programs(request, _OTHERS)


def _cudnn_calls(request: AttentionRequest, platform: Platform) -> Verdict | None:
    if request.deterministic:
        return Verdict.no(
            ReasonCode.DETERMINISM, "cuDNN's attention gives other bits in other runs", _OTHERS
        )
    for name in ("batch", "q_heads"):
        if getattr(request, name) > _MOST_CUDNN:
            return Verdict.no(
                ReasonCode.SHAPE,
                f"{name}: expected at most {_MOST_CUDNN}, got {getattr(request, name)}",
                _OTHERS,
            )
    # Of a causal mask the kernel gets as many keys as rows.
    causal = request.mask is MaskKind.CAUSAL
    keys = min(request.q_length, request.kv_length) if causal else request.kv_length
    if keys == 1:
        return Verdict.no(ReasonCode.SHAPE, "cuDNN takes no single key", _OTHERS)
    return None


def _cudnn_library(request: AttentionRequest, platform: Platform) -> Verdict | None:
    found = platform.library("cudnn")
    if found is None:
        return Verdict.no(
            ReasonCode.DEPENDENCY, "torch has no cuDNN here", "install a torch built with cuDNN"
        )
    if version_numbers(platform, "cudnn") < _CUDNN:
        return Verdict.no(
            ReasonCode.VERSION,
            f"expected cuDNN {'.'.join(map(str, _CUDNN))} or newer, got {found}",
            "install the cuDNN that torch's installation names",
        )
    return None


def _cudnn_head(request: AttentionRequest, platform: Platform) -> Verdict | None:
    sizes = request.head_dim, request.value_dim
    if sizes[0] % 8 or sizes[1] % 8:
        return Verdict.no(
            ReasonCode.HEAD_DIM, f"head sizes must be multiples of 8, got {sizes}", _OTHERS
        )
    version = version_numbers(platform, "cudnn")
    wide = _wide_heads(platform)
    if wide and version >= _CUDNN_256:
        limit = 256
        if request.grad and max(sizes) > 128 and sizes not in {(192, 128), (256, 256)}:
            return Verdict.no(
                ReasonCode.HEAD_DIM,
                f"cuDNN's gradients have heads up to 128, (192, 128) and (256, 256), got {sizes}",
                _OTHERS,
            )
    else:
        limit = 192 if wide and version >= _CUDNN_192 and sizes == (192, 128) else 128
    if max(sizes) > limit:
        return Verdict.no(
            ReasonCode.HEAD_DIM,
            f"cuDNN {platform.library('cudnn')} takes heads up to {limit} here, got {sizes}",
            _OTHERS,
        )
    return None


def _cudnn_decode(request: AttentionRequest, platform: Platform) -> Verdict | None:
    """Leave single rows to FlashAttention-2 where it was measured to be faster."""
    accelerator = accelerator_of(platform)
    found = None if accelerator is None else capability(accelerator)
    single = request.q_length == 1 and not request.grad
    if not single or found != _HOPPER or not supports_flash(request, platform).supported:
        return None
    return Verdict.no(
        ReasonCode.PURPOSE,
        "computes many rows best; on sm_90 a single one takes 1.2 to 1.4 times as long as by "
        "FlashAttention-2, which splits the keys",
        "cuda.flash computes it",
    )


def _wide_heads(platform: Platform) -> bool:
    """Whether cuDNN has kernels for heads beyond 128 on the GPU."""
    accelerator = accelerator_of(platform)
    found = None if accelerator is None else capability(accelerator)
    return found == (9, 0) or (found is not None and found[0] == 10 and found[1] != 7)


def _flash_head(request: AttentionRequest, platform: Platform) -> Verdict | None:
    size = request.head_dim
    if request.value_dim != size:
        return Verdict.no(
            ReasonCode.HEAD_DIM,
            f"value_dim must be head_dim, got {request.value_dim} and {size}",
            _OTHERS,
        )
    if size % 8 or size > 256:
        return Verdict.no(
            ReasonCode.HEAD_DIM,
            f"head_dim: expected a multiple of 8 up to 256, got {size}",
            _OTHERS,
        )
    accelerator = accelerator_of(platform)
    found = None if accelerator is None else capability(accelerator)
    small = found is not None and ((8, 6) <= found <= (8, 9) or found[0] == 12)
    if request.grad and small and 192 < size <= 224:
        return Verdict.no(
            ReasonCode.HEAD_DIM,
            f"has no gradients for heads of 193 to 224 with this GPU's shared memory, got {size}",
            _OTHERS,
        )
    return None


def _efficient_dtype(request: AttentionRequest, platform: Platform) -> Verdict | None:
    accelerator = accelerator_of(platform)
    found = None if accelerator is None else capability(accelerator)
    brain = found is not None and found >= (8, 0)
    known = ("float32", *_HALF) if brain else ("float32", "float16")
    if request.dtype in known:
        return None
    return Verdict.no(
        ReasonCode.DTYPE, f"computes {', '.join(known)} here; got {request.dtype}", _OTHERS
    )


def _efficient_calls(request: AttentionRequest, platform: Platform) -> Verdict | None:
    step = 4 if request.dtype == "float32" else 8
    sizes = request.head_dim, request.value_dim
    if sizes[0] % step or sizes[1] % step:
        return Verdict.no(
            ReasonCode.HEAD_DIM,
            f"head sizes must be multiples of {step} in {request.dtype}, got {sizes}",
            _OTHERS,
        )
    if request.q_heads != request.kv_heads:
        return Verdict.no(
            ReasonCode.SHAPE,
            f"takes as many key heads as query heads, got {request.kv_heads} and {request.q_heads}",
            _OTHERS,
        )
    if request.deterministic and request.grad:
        return Verdict.no(
            ReasonCode.DETERMINISM, "its gradients have other bits in other runs", _OTHERS
        )
    return None
