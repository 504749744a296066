"""What the libraries take, as verdicts that follow from request and platform alone."""

from __future__ import annotations

import re
from typing import Final

from torchyard import Platform, ReasonCode, Verdict
from torchyard_attention.contract import AttentionRequest, refused_programs
from torchyard_rocm._vendor import DEVICE
from torchyard_rocm.attention._libraries import Library

__all__ = ["supports"]

_DTYPES: Final = ("float16", "bfloat16")
_OTHERS: Final = "rocm.triton and attention.tiled compute it"
_MOST: Final = 256


def supports(request: AttentionRequest, platform: Platform, *, library: Library) -> Verdict:
    """Say whether a library computes a request's outputs.

    Gradients are another implementation's, from these outputs.
    """
    return (
        _machine(request, platform, library)
        or _heads(request, library)
        or _call(request)
        or Verdict.yes(
            f"{library.distribution} {platform.library(library.platform_name)}; its function is "
            f"compared with what was read when it is loaded, and no AMD GPU ran it here"
        )
    )


def _machine(request: AttentionRequest, platform: Platform, library: Library) -> Verdict | None:
    if request.device != DEVICE:
        return Verdict.no(ReasonCode.DEVICE, f"expected tensors on {DEVICE}, got {request.device}")
    accelerator = platform.accelerator(DEVICE)
    if accelerator is None:
        return Verdict.no(ReasonCode.DEVICE, "expected an AMD GPU, found none")
    if accelerator.architecture not in library.architectures:
        return Verdict.no(
            ReasonCode.ISA,
            f"expected one of {', '.join(library.architectures)}, got "
            f"{accelerator.architecture or 'unknown'}",
        )
    found = platform.library(library.platform_name)
    if found is None:
        return Verdict.no(
            ReasonCode.DEPENDENCY, f"{library.distribution} is not installed", library.install
        )
    numbers = re.match(r"\d+(\.\d+)*", found)
    if numbers is None or tuple(map(int, numbers[0].split("."))) < library.least:
        least = ".".join(map(str, library.least))
        return Verdict.no(
            ReasonCode.VERSION,
            f"expected {library.distribution} {least} or newer, got {found}",
            library.install,
        )
    return None


def _call(request: AttentionRequest) -> Verdict | None:
    if request.dtype not in _DTYPES:
        return Verdict.no(
            ReasonCode.DTYPE, f"computes {' and '.join(_DTYPES)}; got {request.dtype}", _OTHERS
        )
    return refused_programs(request, _OTHERS)


def _heads(request: AttentionRequest, library: Library) -> Verdict | None:
    sizes = request.head_dim, request.value_dim
    equal = sizes[0] == sizes[1] and 8 <= sizes[0] <= _MOST and not sizes[0] % 8
    if equal or sizes in library.pairs:
        return None
    besides = "".join(f", or {pair}" for pair in library.pairs)
    return Verdict.no(
        ReasonCode.HEAD_DIM,
        f"expected head_dim and value_dim equal, a multiple of 8 from 8 to {_MOST}{besides}; got "
        f"{sizes}",
        _OTHERS,
    )
