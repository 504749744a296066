"""Implementations of ``graph_capture/1``: a planned recording, and a device's own graphs."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from torchyard import Implementation, Platform, ReasonCode, Verdict, hookimpl
from torchyard_kernels.graphs.contract import (
    GRAPH_CAPTURE,
    Capturer,
    GraphRequest,
    graph_faults,
)

__all__ = ["torchyard_implementations"]

# The first torch with torch.accelerator.Graph.
_SINCE: Final = (2, 12)
# Device types that calls are recorded for.
_RECORDED: Final = ("cpu",)
# Device types for which torch 2.13 has no graphs, and what there is instead.
_WITHOUT: Final = {
    "cpu": "kernels.recorded plays calls again",
    "mps": "torch captures no command buffers of Metal; call the function as it is",
}


@hookimpl
def torchyard_implementations(contract: str) -> Sequence[Implementation]:
    """Return both implementations; imports no torch."""
    if contract != GRAPH_CAPTURE:
        return []
    return [
        Implementation(GRAPH_CAPTURE, "kernels.recorded", _supports_recorded, _load_recorded),
        Implementation(GRAPH_CAPTURE, "kernels.accelerator", _supports_device, _load_accelerator),
    ]


def _supports_recorded(request: GraphRequest, platform: Platform) -> Verdict:
    if request.device not in _RECORDED:
        return Verdict.no(ReasonCode.DEVICE, f"records for cpu, got {request.device}")
    return Verdict.yes("the operators run in torch's TorchScript interpreter, into planned memory")


def _supports_device(request: GraphRequest, platform: Platform) -> Verdict:
    if request.device in _WITHOUT:
        text = f"torch has no graphs for {request.device}"
        return Verdict.no(ReasonCode.DEVICE, text, _WITHOUT[request.device])
    version = re.match(r"(\d+)\.(\d+)", platform.torch or "")
    if version is not None and (int(version[1]), int(version[2])) < _SINCE:
        least = ".".join(map(str, _SINCE))
        return Verdict.no(
            ReasonCode.VERSION,
            f"torch has torch.accelerator.Graph from {least} on, got {platform.torch}",
            f"install torch {least} or newer, or the plugin of the device",
        )
    faults = graph_faults(request.device, platform, request.operators)
    if faults:
        first = faults[0]
        return Verdict.no(
            ReasonCode.OTHER, f"{first.operator}: {first.text} ({first.source})", first.hint
        )
    return Verdict.yes("torch.accelerator.Graph")


def _load_recorded() -> Capturer:
    from torchyard_kernels.graphs.implementations.recorded import capture_on_cpu

    return capture_on_cpu


def _load_accelerator() -> Capturer:
    from torchyard_kernels.graphs.implementations.accelerator import capture_on_accelerator

    return capture_on_accelerator
