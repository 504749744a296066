"""kernels.recorded: replays on the CPU, by the quickest way that takes all of a plan."""

from __future__ import annotations

from torchyard_kernels.graphs.contract import Captured, GraphSource
from torchyard_kernels.graphs.implementations._eager_replay import called
from torchyard_kernels.graphs.implementations._jit_replay import NotExpressibleError, interpreted
from torchyard_kernels.graphs.implementations._plan import plan

__all__ = ["recorded"]


def recorded(source: GraphSource) -> Captured:
    """Capture for the CPU."""
    made = plan(source)
    try:
        replay, outputs = interpreted(made)
        mechanism = "torch's interpreter"
    except NotExpressibleError as error:
        replay, outputs = called(made)
        mechanism = f"calls from Python, since the interpreter cannot take {error}"
    return Captured(replay, outputs, mechanism, len(made.steps), made.held_bytes, made.made_bytes)
