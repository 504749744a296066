"""cuda.graph: execution graphs by torch.cuda.graph, for torch without torch.accelerator.Graph."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from torchyard import Implementation, Platform, ReasonCode, Verdict, hookimpl
from torchyard_cuda._capability import DEVICE, accelerator_of
from torchyard_kernels.graphs.contract import (
    GRAPH_CAPTURE,
    Captured,
    Capturer,
    GraphRequest,
    GraphSource,
)

__all__ = ["NAME", "supports", "torchyard_implementations"]

NAME: Final = "cuda.graph"


def supports(request: GraphRequest, platform: Platform) -> Verdict:
    """Say whether the machine has an NVIDIA GPU; each of them has graphs."""
    if request.device != DEVICE:
        return Verdict.no(ReasonCode.DEVICE, f"captures on {DEVICE}, got {request.device}")
    if accelerator_of(platform) is None:
        return Verdict.no(ReasonCode.DEVICE, "expected an NVIDIA GPU, found none")
    return Verdict.yes("torch.cuda.graph")


@hookimpl
def torchyard_implementations(contract: str) -> Sequence[Implementation]:
    """Return the contract's one implementation; imports no torch."""
    if contract != GRAPH_CAPTURE:
        return []
    return [Implementation(GRAPH_CAPTURE, NAME, supports, _load)]


def _load() -> Capturer:
    return _capture


def _capture(source: GraphSource) -> Captured:
    """Capture on the device of the inputs; torch.cuda.graph takes a stream of its own."""
    import torch

    device = (*source.inputs, *source.outputs, *source.state)[0].device
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.device(device):
        # Work queued on the current stream must finish first: a capture may not wait for it.
        torch.cuda.synchronize(device)
        with torch.cuda.graph(graph):
            outputs = source.run()
    return Captured(graph.replay, outputs, "torch.cuda.graph", len(source.steps))
