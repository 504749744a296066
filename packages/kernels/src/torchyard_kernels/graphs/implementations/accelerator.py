"""kernels.accelerator: a device's own graphs, through torch.accelerator.Graph.

On CUDA and XPU that is what torch.cuda.CUDAGraph and torch.xpu.XPUGraph are.
"""

from __future__ import annotations

from torch import Stream, accelerator

from torchyard_kernels.graphs.contract import Captured, GraphSource

__all__ = ["accelerated"]


def accelerated(source: GraphSource) -> Captured:
    """Capture on the device of the inputs, on a stream of its own."""
    device = (*source.inputs, *source.outputs, *source.state)[0].device
    graph = accelerator.Graph()
    # What was asked for on the current stream comes before the capture, which must not wait.
    accelerator.synchronize(device)
    with Stream(device), graph:
        outputs = source.run()
    return Captured(graph.replay, outputs, "torch.accelerator.Graph", len(source.steps))
