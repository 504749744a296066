"""attention.flex: torch's flex_attention, compiled by Inductor."""

from __future__ import annotations

from typing import Final

from torchyard import Accelerator, Platform, ReasonCode, Verdict
from torchyard_attention.contract import AttentionRequest, Backward, Forward, ScoreKind

__all__ = ["load", "load_backward", "supports", "supports_backward"]

_DTYPES: Final = ("float16", "bfloat16", "float32")
# What torch.nn.attention.flex_attention lets through (torch 2.13, _validate_device).
_DEVICES: Final = ("cpu", "cuda", "hpu", "mps", "xpu")
# Of these devices torch's templates are Triton's.
_TRITON: Final = ("cuda", "xpu")
# What Inductor refuses to compile for is older than this CUDA capability (torch 2.13).
_OLDEST_CUDA: Final = 70
_WITHOUT_LSE: Final = ("cpu", "mps")
# What a block of theirs divides, whatever Inductor's heuristics choose (torch 2.13).
_BLOCK: Final = 128
# Triton multiplies no smaller matrices.
_SMALLEST_HEAD: Final = 16
_COMPILED: Final = "compiled by Inductor when a shape is first seen"


def supports(request: AttentionRequest, platform: Platform) -> Verdict:
    """Accept what torch's templates compile for the device."""
    if request.device not in _DEVICES:
        return Verdict.no(
            ReasonCode.DEVICE,
            f"torch refuses every device but {', '.join(_DEVICES)}; got {request.device}",
            "use attention.tiled",
        )
    if request.dtype not in _DTYPES:
        return Verdict.no(
            ReasonCode.DTYPE,
            f"torch's templates compute {', '.join(_DTYPES)}; got {request.dtype}",
            "cast the inputs",
        )
    if request.dropout:
        return Verdict.no(
            ReasonCode.DROPOUT, "torch's templates drop no weights", "use attention.tiled"
        )
    if request.score is ScoreKind.GENERAL:
        return Verdict.no(
            ReasonCode.SCORE_MOD,
            "torch's templates inline pointwise programs, got a general score_mod",
            "use attention.tiled",
        )
    if request.device in _WITHOUT_LSE and (request.lse or request.max_scores or request.grad):
        wanted = "max_scores" if request.max_scores else "lse" if request.lse else "grad"
        return Verdict.no(
            ReasonCode.GRAD if wanted == "grad" else ReasonCode.OUTPUT,
            f"torch's template for {request.device} returns neither lse nor max_scores and has no "
            f"backward; the request has {wanted}",
            "use attention.tiled",
        )
    sizes = (request.batch, request.q_length, request.kv_length, request.head_dim)
    if 0 in (*sizes, request.value_dim):
        return Verdict.no(
            ReasonCode.SHAPE, "torch's templates need sizes above 0", "use attention.tiled"
        )
    if request.device == "cpu":
        return _supports_cpu(platform)
    if request.device in _TRITON:
        return _supports_triton(request, platform)
    return Verdict.yes(_COMPILED)


def supports_backward(request: AttentionRequest, platform: Platform) -> Verdict:
    """Accept what torch's template of the backward compiles for the device, in Triton."""
    if request.device not in _TRITON:
        return Verdict.no(
            ReasonCode.DEVICE,
            f"torch's template of the backward is Triton's, for {' and '.join(_TRITON)}; got "
            f"{request.device}",
            "use attention.tiled",
        )
    if any(request.captured_grad):
        return Verdict.no(
            ReasonCode.DETERMINISM,
            "torch adds the gradients of captured tensors in an order that differs between calls",
            "use attention.tiled",
        )
    return supports(request, platform)


def _supports_triton(request: AttentionRequest, platform: Platform) -> Verdict:
    """Accept what the templates in Triton compute."""
    for name in ("head_dim", "value_dim"):
        if getattr(request, name) < _SMALLEST_HEAD:
            return Verdict.no(
                ReasonCode.HEAD_DIM,
                f"torch's templates in Triton need {name} of {_SMALLEST_HEAD} or more, got "
                f"{getattr(request, name)}",
                "use attention.tiled",
            )
    if any(size % _BLOCK for size in request.block_size):
        return Verdict.no(
            ReasonCode.MASK,
            f"torch's templates in Triton need blocks of multiples of {_BLOCK}, got "
            f"{request.block_size}",
            f"make the mask with BLOCK_SIZE={_BLOCK}, or use attention.tiled",
        )
    accelerator = platform.accelerator(request.device)
    # What is not known of a machine does not refuse.
    return Verdict.yes(_COMPILED) if accelerator is None else _runs_triton(accelerator, platform)


def _runs_triton(accelerator: Accelerator, platform: Platform) -> Verdict:
    if platform.library("triton") is None:
        return Verdict.no(
            ReasonCode.DEPENDENCY,
            f"torch's template for {accelerator.device} is compiled by Triton, which is not "
            f"installed",
            "install the Triton that torch's installation names",
        )
    capability = accelerator.architecture.removeprefix("sm_")
    if capability.isdigit() and int(capability) < _OLDEST_CUDA:
        return Verdict.no(
            ReasonCode.ISA,
            f"Inductor compiles for sm_{_OLDEST_CUDA} and newer, got {accelerator.architecture}",
            "use attention.tiled",
        )
    return Verdict.yes(_COMPILED)


def _supports_cpu(platform: Platform) -> Verdict:
    if "avx2" not in platform.cpu_features or platform.system == "Darwin":
        return Verdict.no(
            ReasonCode.ISA,
            f"torch's template for cpu needs AVX2 on Linux or Windows, got {platform.machine} on "
            f"{platform.system}",
            "use attention.tiled",
        )
    if "xpu" in platform.devices:
        return Verdict.no(
            ReasonCode.DEVICE,
            "torch switches its template for cpu off where an xpu is present",
            "use attention.tiled",
        )
    return Verdict.yes(_COMPILED)


def load() -> Forward:
    """Return the forward."""
    from torchyard_attention.implementations._compiled_flex import compiled_forward

    return compiled_forward


def load_backward() -> Backward:
    """Return the backward."""
    from torchyard_attention.implementations._flex_backward import compiled_backward

    return compiled_backward
