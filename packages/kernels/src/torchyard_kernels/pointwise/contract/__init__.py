"""The contract ``pointwise/1``: a pointwise function over lists of tensors.

With a program of A inputs and R results, and G groups, for every group g and result r::

    out[r][g] = program_r(inputs[0][g], ..., inputs[A - 1][g], captured...)

element by element, where the tensors of a group broadcast as torch's do. Groups are independent. A
result has the dtype that torch's promotion gives for the group. Inside of a program bfloat16 and
float16 are computed as float32 and rounded when a result is stored, or where the program converts;
so a result may differ from a chain of torch's operations, each of which rounds, and is never
further from the exact value than a float32 computation. float32 is computed as float32 and float64
as float64; integers as torch computes them.
Source: torch._foreach_* and torch._higher_order_ops.foreach_map (torch 2.13) for how lists, tensors
and numbers are mixed.

A plugin that implements the contract imports this module, which imports torch only for type
checkers, and reads programs with ``torchyard_programs``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

from torchyard import ContractDefinition, RequestField, round_size
from torchyard_kernels._request_fields import parse_sizes

if TYPE_CHECKING:
    from torch import Tensor

__all__ = [
    "DEFINITIONS",
    "NUMBERS",
    "POINTWISE",
    "Operand",
    "PointwiseCall",
    "PointwiseKernel",
    "PointwiseRequest",
]

POINTWISE: Final = "pointwise/1"

# The dtypes of plain numbers, by their names in an operand.
NUMBERS: Final = {"bool": bool, "int": int, "float": float}

# What an input or a captured tensor is: a dtype's name and the number of dimensions as torch's
# promotion sees it, 0 or 1 for any more; -1 for a plain number, with a name of NUMBERS.
Operand = tuple[str, int]


@dataclass(frozen=True, slots=True)
class PointwiseRequest:
    """Describe a call, without its tensors. All groups of a call have the same operands.

    Attributes:
        device: torch device type.
        text: the program, which names its inputs ``x0``, ``x1`` and so on.
        inputs: of each input.
        captured: of each captured tensor.
        out: dtype names of the tensors that results are written to; empty where results are new.
        groups: how many; above 16 rounded up to a power of two.
    """

    device: str
    text: str
    inputs: tuple[Operand, ...]
    captured: tuple[Operand, ...] = ()
    out: tuple[str, ...] = ()
    groups: int = 1

    def __post_init__(self) -> None:
        object.__setattr__(self, "groups", round_size(self.groups))

    def bucket(self) -> str:
        """Return the key under which the decision for this request is locked.

        Of a program it holds the operands alone: a lock is about sizes, not about programs.
        """
        operands = " ".join(_spelled(operand) for operand in (*self.inputs, *self.captured))
        return f"{self.device} {operands} x{self.groups}{' in place' if self.out else ''}"


@dataclass(frozen=True, slots=True, eq=False)
class PointwiseCall:
    """The tensors of a call.

    Attributes:
        request: what the call is.
        inputs: of each input the tensors, or the numbers, of all groups; any strides. One object
            may be in several groups.
        captured: the program's captured tensors, which every group broadcasts with.
        out: of each result the tensors to write to, one per group, each of the group's broadcast
            shape; empty where results are new. A tensor may be an input of its own group; with
            inputs of other groups it shares no memory.
    """

    request: PointwiseRequest
    inputs: tuple[Sequence[Tensor] | Sequence[bool | int | float], ...]
    captured: tuple[Tensor, ...]
    out: tuple[Sequence[Tensor], ...] = ()


class PointwiseKernel(Protocol):
    """The callable that an implementation of ``pointwise/1`` loads.

    May have ``fast_path(request)``: see ``torchyard.dispatch``. The path takes (lists, captured,
    out), tuples of foreach_map's arguments as they were passed, of the captured tensors, and of the
    lists to write to, or None. It returns a tuple of lists, or True where ``out`` was given. It
    computes any number of groups.
    """

    def __call__(self, call: PointwiseCall) -> tuple[list[Tensor], ...]:
        """Return, for each result, the tensors of all groups: new and contiguous, or ``call.out``
        where that is given."""


_FIELDS: Final = (
    RequestField("device", "torch device type", "cpu"),
    RequestField("text", "the program's text; \\n ends a line", '["mul",["x0","x1"],{}]\\n"%0"'),
    RequestField(
        "inputs",
        "dtype:dimensions of each input, split by commas; 1 for any number of dimensions above 0, "
        "and -1 for a plain number: bool, int or float",
        "float32:1,float:-1",
    ),
    RequestField("captured", "dtype:dimensions of each captured tensor, split by commas", ""),
    RequestField("out", "dtypes of the tensors to write to, split by commas; empty: new ones", ""),
    RequestField("groups", "how many tensors a list holds", "1"),
)


def _parse_request(text: Mapping[str, str]) -> PointwiseRequest:
    """Build a request from text fields, those of ``torchyard explain pointwise``.

    Raises:
        ValueError: names the field, what was expected and what came.
    """
    return PointwiseRequest(
        device=text["device"],
        text=text["text"].replace("\\n", "\n"),
        inputs=_operands("inputs", text["inputs"]),
        captured=_operands("captured", text["captured"]),
        out=tuple(name for name in text["out"].split(",") if name),
        groups=parse_sizes("groups", text["groups"], 1)[0],
    )


def _operands(name: str, text: str) -> tuple[Operand, ...]:
    found = []
    for part in filter(None, text.split(",")):
        dtype, _, dimensions = part.partition(":")
        known = ("-1",) if dtype in ("int", "float") else ("-1", "0", "1")
        if not dtype or dimensions not in known:
            raise ValueError(
                f"{name}: expected dtype:dimensions with 0 or 1, or -1 for a number, got {part!r}"
            )
        found.append((dtype, int(dimensions)))
    return tuple(found)


def _representative_requests(device: str) -> Iterator[PointwiseRequest]:
    """Yield the requests whose decisions a release records."""
    scale = '["mul",["x0","x1"],{}]\n"%0"'
    move = '["lerp",["x0","x1","x2"],{}]\n"%0"'
    for dtype in ("float32", "bfloat16", "float16", "float64"):
        for groups in (1, 256):
            yield PointwiseRequest(device, scale, ((dtype, 1), ("float", -1)), groups=groups)
            yield PointwiseRequest(
                *(device, move, ((dtype, 1), (dtype, 1), ("float", -1))),
                out=(dtype,),
                groups=groups,
            )


DEFINITIONS: Final = {
    POINTWISE: ContractDefinition(
        contract=POINTWISE,
        summary="a pointwise function over lists of tensors",
        fields=_FIELDS,
        parse=_parse_request,
        cases=_representative_requests,
    )
}


def _spelled(operand: Operand) -> str:
    dtype, dimensions = operand
    return {-1: f"{dtype}()", 0: f"{dtype}[]"}.get(dimensions, dtype)
