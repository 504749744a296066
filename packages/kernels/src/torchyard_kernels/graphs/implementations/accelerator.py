"""kernels.accelerator: a device's own graphs, by torch.accelerator.Graph.

On CUDA and XPU it is torch.cuda.CUDAGraph and torch.xpu.XPUGraph.
"""

from __future__ import annotations

from torch import Stream, accelerator

from torchyard_kernels.graphs.contract import Captured, GraphSource

__all__ = ["capture_on_accelerator"]


def capture_on_accelerator(source: GraphSource) -> Captured:
    """Capture on the device of the inputs, on a new stream."""
    device = (*source.inputs, *source.outputs, *source.state)[0].device
    graph = accelerator.Graph()
    # Work queued on the current stream must finish first: a capture may not wait for it.
    accelerator.synchronize(device)
    with Stream(device), graph:
        outputs = source.run()
    return Captured(graph.replay, outputs, "torch.accelerator.Graph", len(source.steps))
