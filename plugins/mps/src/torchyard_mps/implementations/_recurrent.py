"""Recurrent layers: verdicts on requests, and what computes them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from torchyard import Implementation, Platform, ReasonCode, Verdict
from torchyard_mps._family import supports_machine

if TYPE_CHECKING:
    from torchyard_kernels.recurrent.contract import RecurrentRequest

__all__ = ["offered", "supports_recurrent"]

# As the component's contract has them, which is imported where it is used alone.
_FORWARD: Final = "recurrent/1"
_BACKWARD: Final = "recurrent_backward/1"
_DTYPES: Final = ("float32", "bfloat16", "float16")
# What computes the contract on any device.
_OTHERS: Final = ("kernels.aten", "kernels.steps")
# Lengths are int, as are the positions of threadgroups.
_MOST: Final = 2**31 - 1


def offered(contract: str) -> Sequence[Implementation]:
    """Return what computes recurrent layers or their gradients; nothing of another contract."""
    if contract == _FORWARD:
        load = _load_forward
    elif contract == _BACKWARD:
        load = _load_backward
    else:
        return []
    return [Implementation(contract, "mps.metal", supports_recurrent, load, before=_OTHERS)]


def supports_recurrent(request: RecurrentRequest, platform: Platform) -> Verdict:
    """Say whether the kernels compute a request; a function of these arguments alone.

    Gradients are computed of whatever the forward computes.
    """
    verdict = supports_machine(request.device, platform)
    if not verdict.supported:
        return verdict
    if request.dtype not in _DTYPES:
        known = f"{', '.join(_DTYPES[:-1])} and {_DTYPES[-1]}"
        return Verdict.no(
            ReasonCode.DTYPE, f"computes {known}; got {request.dtype}", "convert the layer"
        )
    if request.grad and not request.reserve:
        return Verdict.no(
            ReasonCode.GRAD,
            "keeps what gradients need where the op records its own alone",
            "call it under torch.no_grad(), or let kernels.aten compute it",
        )
    sizes = request.steps, request.batch, request.input_size, request.hidden_size
    if max(sizes) > _MOST:
        return Verdict.no(
            ReasonCode.SHAPE,
            f"expected at most {_MOST} steps, sequences, inputs and units, got {max(sizes)}",
        )
    return verdict


def _load_forward() -> Any:
    from torchyard_mps.recurrent import forward

    return forward


def _load_backward() -> Any:
    from torchyard_mps.recurrent import backward

    return backward
