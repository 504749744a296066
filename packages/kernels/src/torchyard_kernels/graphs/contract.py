"""The contract ``graph_capture/1``: capture a function's operators, and replay them as one.

An implementation receives a function without arguments that reads and writes tensors at fixed
addresses, and returns a function that runs the same operators on the same tensors again. Every
replay draws new random numbers from the device's default generator, as many and in the same order
as the function.

A plugin that implements the contract imports this module alone, which imports torch only for type
checkers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol

from torchyard import ContractDefinition, RequestField
from torchyard_kernels.graphs._faults import FAULTS, GraphFault, graph_faults

if TYPE_CHECKING:
    from torch import Tensor

__all__ = [
    "DEFINITIONS",
    "GRAPH_CAPTURE",
    "Captured",
    "Capturer",
    "GraphFault",
    "GraphRequest",
    "GraphSource",
    "Step",
    "graph_faults",
]

GRAPH_CAPTURE: Final = "graph_capture/1"


@dataclass(frozen=True, slots=True)
class GraphRequest:
    """Describe a capture, without its tensors.

    Attributes:
        device: torch device type of all tensors.
        operators: names of operators that the function calls, such as ``aten::mm``; only those of
            which some machine's graphs have a fault, see :func:`graph_faults`.
    """

    device: str
    operators: frozenset[str] = frozenset()

    def bucket(self) -> str:
        """Return the key under which the decision for this request is locked."""
        return " ".join((self.device, *sorted(self.operators)))


@dataclass(frozen=True, slots=True, eq=False)
class Step:
    """One operator as torch's dispatcher saw it, below autograd.

    Attributes:
        op: the torch._ops.OpOverload.
        args, kwargs: its arguments.
        result: its result.
    """

    op: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    result: Any


@dataclass(frozen=True, slots=True, eq=False)
class GraphSource:
    """What to capture.

    Attributes:
        run: the function: reads ``inputs``, returns its outputs. It has run before, so that lazy
            initialisation is done.
        inputs: tensors into which a replay's arguments are copied.
        state: other tensors that it changes in place.
        steps: the operators of one run; all of them can be captured.
        outputs: what that run returned.
    """

    run: Callable[[], tuple[Tensor, ...]]
    inputs: tuple[Tensor, ...]
    state: tuple[Tensor, ...]
    steps: tuple[Step, ...]
    outputs: tuple[Tensor, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Captured:
    """A captured function.

    Attributes:
        replay: runs the operators again.
        outputs: the tensors that hold the outputs after each replay, in their order.
        mechanism: how a replay runs, in a few words.
        launches: operators that a replay runs; None if unknown.
        planned_bytes: memory for intermediate results; None if unknown.
        requested_bytes: memory that one run of the function itself allocates; None if unknown.
    """

    replay: Callable[[], None]
    outputs: tuple[Tensor, ...]
    mechanism: str
    launches: int | None = None
    planned_bytes: int | None = None
    requested_bytes: int | None = None


class Capturer(Protocol):
    """The callable that an implementation of ``graph_capture/1`` loads."""

    def __call__(self, source: GraphSource) -> Captured:
        """Capture; may run ``source.run`` again."""


_FIELDS: Final = (
    RequestField("device", "torch device type", "cpu"),
    RequestField("operators", "names that the function calls, such as aten::mm, by commas", ""),
)


def _parse_request(text: Mapping[str, str]) -> GraphRequest:
    names = frozenset(name.strip() for name in text["operators"].split(",") if name.strip())
    unnamed = sorted(name for name in names if "::" not in name)
    if unnamed:
        raise ValueError(
            f"operators: expected names with a namespace, such as aten::mm, got {unnamed[0]!r}"
        )
    return GraphRequest(text["device"], names)


def _representative_requests(device: str) -> Iterator[GraphRequest]:
    yield GraphRequest(device)
    for fault in FAULTS:
        if fault.device == device:
            yield GraphRequest(device, frozenset({fault.operator}))


DEFINITIONS: Final = {
    GRAPH_CAPTURE: ContractDefinition(
        contract=GRAPH_CAPTURE,
        summary="a function's operators, captured and replayed as one",
        fields=_FIELDS,
        parse=_parse_request,
        cases=_representative_requests,
    )
}
