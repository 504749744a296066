"""The contract ``graph_capture/1``: a function's operators, held so that they run again as one.

An implementation is given a function of no arguments that reads and writes tensors at fixed places,
and returns what runs the same operators on the same places again. Every replay draws new random
numbers from the device's default generator, in the order and number in which the function does.

This module is what a plugin needs to serve it. It imports torch only for type checkers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol

from torchyard import ContractDefinition, RequestField

if TYPE_CHECKING:
    from torch import Tensor

__all__ = [
    "DEFINITIONS",
    "GRAPH_CAPTURE",
    "Captured",
    "Capturer",
    "GraphRequest",
    "GraphSource",
    "Step",
]

GRAPH_CAPTURE: Final = "graph_capture/1"


@dataclass(frozen=True, slots=True)
class GraphRequest:
    """Describe a capture, without its tensors.

    Attributes:
        device: torch device type of all tensors.
    """

    device: str

    def bucket(self) -> str:
        """Return the key under which the decision for this request is locked."""
        return self.device


@dataclass(frozen=True, slots=True, eq=False)
class Step:
    """One operator as torch's dispatcher saw it, below autograd.

    Attributes:
        op: the torch._ops.OpOverload.
        args, kwargs: what it was given.
        result: what it returned.
    """

    op: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    result: Any


@dataclass(frozen=True, slots=True, eq=False)
class GraphSource:
    """What is to be captured.

    Attributes:
        run: the function: reads ``inputs``, returns its outputs. It has run before, so what is made
            on first use is there.
        inputs: tensors that a replay's values are copied into.
        state: other tensors that it changes in place.
        steps: the operators of one run, none of which cannot be captured.
        outputs: what that run returned.
    """

    run: Callable[[], tuple[Tensor, ...]]
    inputs: tuple[Tensor, ...]
    state: tuple[Tensor, ...]
    steps: tuple[Step, ...]
    outputs: tuple[Tensor, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Captured:
    """What was captured.

    Attributes:
        replay: runs the operators again.
        outputs: where each replay leaves the outputs, in their order.
        mechanism: how, in a few words.
        launches: operators that a replay runs; None where nobody knows.
        held_bytes: memory that is held for intermediate results; None where nobody knows.
        made_bytes: memory that the function itself asks for in one run; None likewise.
    """

    replay: Callable[[], None]
    outputs: tuple[Tensor, ...]
    mechanism: str
    launches: int | None = None
    held_bytes: int | None = None
    made_bytes: int | None = None


class Capturer(Protocol):
    """The callable that an implementation of ``graph_capture/1`` loads."""

    def __call__(self, source: GraphSource) -> Captured:
        """Capture; may run ``source.run`` again."""


_FIELDS: Final = (RequestField("device", "torch device type", "cpu"),)


def _parse_request(text: Mapping[str, str]) -> GraphRequest:
    return GraphRequest(text["device"])


def _representative_requests(device: str) -> Iterator[GraphRequest]:
    yield GraphRequest(device)


DEFINITIONS: Final = {
    GRAPH_CAPTURE: ContractDefinition(
        contract=GRAPH_CAPTURE,
        summary="a function's operators, held so that they run again as one",
        fields=_FIELDS,
        parse=_parse_request,
        cases=_representative_requests,
    )
}
