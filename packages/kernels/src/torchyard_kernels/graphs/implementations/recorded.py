"""kernels.recorded: graphs on the CPU, replayed by TorchScript, or from Python where it cannot."""

from __future__ import annotations

from torchyard_kernels.graphs.contract import Captured, GraphSource
from torchyard_kernels.graphs.implementations._eager_replay import eager_replay
from torchyard_kernels.graphs.implementations._jit_replay import NotExpressibleError, jit_replay
from torchyard_kernels.graphs.implementations._plan import plan

__all__ = ["capture_on_cpu"]


def capture_on_cpu(source: GraphSource) -> Captured:
    """Capture for the CPU."""
    planned = plan(source)
    try:
        replay, outputs = jit_replay(planned)
        mechanism = "torch's interpreter"
    except NotExpressibleError as error:
        replay, outputs = eager_replay(planned)
        mechanism = f"calls from Python, since the interpreter cannot take {error}"
    return Captured(
        replay,
        outputs,
        mechanism,
        len(planned.steps),
        planned.planned_bytes,
        planned.requested_bytes,
    )
