"""The layers as a vendor's implementations of ``recurrent/1`` and ``recurrent_backward/1``."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Final

from torchyard import Implementation, Platform, ReasonCode, Verdict
from torchyard_kernels.recurrent.contract import (
    FORWARD,
    Backward,
    Forward,
    RecurrentRequest,
)
from torchyard_triton._machine import supports_machine
from torchyard_triton._vendor import Vendor

__all__ = ["offered", "supports_recurrent"]

_DTYPES: Final = ("float32", "bfloat16", "float16")


def offered(contract: str, vendor: Vendor) -> Sequence[Implementation]:
    """Return the implementation of one of the contracts on a vendor's device."""
    supports = partial(supports_recurrent, vendor=vendor)
    load = _load_forward if contract == FORWARD else _load_backward
    return [Implementation(contract, f"{vendor.name}.triton", supports, load)]


def supports_recurrent(request: RecurrentRequest, platform: Platform, *, vendor: Vendor) -> Verdict:
    """Say whether the kernels compute a request; a function of these arguments alone."""
    verdict = supports_machine(request.device, platform, vendor)
    if not verdict.supported:
        return verdict
    if request.dtype not in _DTYPES:
        known = f"{', '.join(_DTYPES[:-1])} and {_DTYPES[-1]}"
        return Verdict.no(ReasonCode.DTYPE, f"computes {known}; got {request.dtype}")
    if request.proj_size:
        return Verdict.no(
            ReasonCode.SHAPE, f"computes no projection, got proj_size {request.proj_size}"
        )
    if request.grad and not request.reserve:
        return Verdict.no(
            ReasonCode.GRAD, "keeps what gradients need where the op records its own alone"
        )
    return verdict


def _load_forward() -> Forward:
    from torchyard_triton.recurrent._forward import forward

    return forward


def _load_backward() -> Backward:
    from torchyard_triton.recurrent._backward import backward

    return backward
