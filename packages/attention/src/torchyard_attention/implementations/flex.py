"""attention.flex: torch's flex_attention, compiled by Inductor."""

from __future__ import annotations

from typing import Final

from torchyard import Accelerator, Platform, ReasonCode, Verdict
from torchyard_attention.contract import AttentionRequest, Forward, ScoreKind

__all__ = ["load", "supports"]

_DTYPES: Final = ("float16", "bfloat16", "float32")
# What torch.nn.attention.flex_attention lets through (torch 2.13, _validate_device).
_DEVICES: Final = ("cpu", "cuda", "hpu", "mps", "xpu")
# Of these devices torch's templates are Triton's.
_TRITON: Final = ("cuda", "xpu")
# What Inductor refuses to compile for is older than this CUDA capability (torch 2.13).
_OLDEST_CUDA: Final = 70
_WITHOUT_LSE: Final = ("cpu", "mps")


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
    accelerator = platform.accelerator(request.device)
    # What is not known of a machine does not refuse.
    if accelerator is not None and request.device in _TRITON:
        return _supports_triton(accelerator, platform)
    return Verdict.yes("compiled by Inductor when a shape is first seen")


def _supports_triton(accelerator: Accelerator, platform: Platform) -> Verdict:
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
    return Verdict.yes("compiled by Inductor when a shape is first seen")


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
    return Verdict.yes("compiled by Inductor when a shape is first seen")


def load() -> Forward:
    """Return the forward."""
    from torchyard_attention.implementations._compiled_flex import compiled_forward

    return compiled_forward
