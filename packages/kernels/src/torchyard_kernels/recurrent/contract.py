"""The contracts ``recurrent/1`` and ``recurrent_backward/1``.

With T steps, B sequences, I inputs, H hidden units, P = proj_size or else H outputs per direction,
D directions, and s the logistic function, one layer and direction computes for each step t, in the
layout of torch's parameters (gates stacked in the order named)::

    lstm      i, f, o = s(Wx x_t + bx + Wh h + bh)    g = tanh(likewise)     order i, f, g, o
              c = f c + i g                           h = o tanh(c), or W_hr (o tanh(c))
    gru       r, z = s(Wx x_t + bx + Wh h + bh)       n = tanh(Wx x_t + bx + r (Wh h + bh))
              h = (1 - z) n + z h                                            order r, z, n
    rnn_tanh  h = tanh(Wx x_t + bx + Wh h + bh)
    rnn_relu  h = max(0, Wx x_t + bx + Wh h + bh)

The second direction takes the steps from last to first; a layer's input is what both directions of
the layer below put out at that step. A sequence of length L has no steps from L on: there the
output is 0, the states stay as they were, and nothing of the input reaches any result. The output
and the hidden state are rounded to the input's dtype at each step; sums, gates and the cell state
within a call are float32, or float64 for float64 inputs. Source: torch.nn.LSTM, GRU and RNN.

A plugin that implements them imports this module, which imports torch only for type checkers and
inside of calls.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from torchyard import ContractDefinition, RequestField, round_size
from torchyard_kernels._request_fields import parse_flag, parse_sizes

if TYPE_CHECKING:
    import torch
    from torch import Tensor

FORWARD: Final = "recurrent/1"
BACKWARD: Final = "recurrent_backward/1"

__all__ = [
    "BACKWARD",
    "DEFINITIONS",
    "FORWARD",
    "Backward",
    "CellWeights",
    "Forward",
    "RecurrentCall",
    "RecurrentGradients",
    "RecurrentKind",
    "RecurrentRequest",
    "RecurrentResult",
    "gates",
    "reserve_columns",
]


class RecurrentKind(StrEnum):
    """Which equations a step follows."""

    LSTM = "lstm"
    GRU = "gru"
    RNN_TANH = "rnn_tanh"
    RNN_RELU = "rnn_relu"


def gates(kind: RecurrentKind) -> int:
    """Return the number of gates in the rows of a weight, each of hidden_size rows."""
    return {RecurrentKind.LSTM: 4, RecurrentKind.GRU: 3}.get(kind, 1)


def reserve_columns(kind: RecurrentKind, hidden_size: int, outputs: int) -> int:
    """Return the width of the reserve: see :class:`RecurrentResult`."""
    if kind is RecurrentKind.LSTM:
        return 5 * hidden_size + outputs
    if kind is RecurrentKind.GRU:
        return 5 * hidden_size
    return hidden_size


@dataclass(frozen=True, slots=True)
class RecurrentRequest:
    """Describe a call, without its tensors. Both contracts use it.

    Attributes:
        device: torch device type.
        dtype: the name of the dtype of input, states and weights, such as ``bfloat16``.
        kind: the equations.
        steps, batch: T, B; above 16 rounded up to a power of two.
        input_size, hidden_size, proj_size: I, H, and the size after projection; 0 without one.
        num_layers: layers.
        bidirectional: whether there are two directions.
        bias: whether the gates have biases.
        ragged: whether sequences have lengths of their own.
        grad: whether gradients will be asked for.
        reserve: whether the forward must return the reserve. Asked for where the op records its
            own gradient; otherwise torch may differentiate the implementation.
        packed: whether the weights were packed before the call.
        deterministic: whether torch was told to use deterministic algorithms.
    """

    device: str
    dtype: str
    kind: RecurrentKind
    steps: int
    batch: int
    input_size: int
    hidden_size: int
    proj_size: int = 0
    num_layers: int = 1
    bidirectional: bool = False
    bias: bool = True
    ragged: bool = False
    grad: bool = False
    reserve: bool = False
    packed: bool = False
    deterministic: bool = False

    def __post_init__(self) -> None:
        for name in ("steps", "batch"):
            object.__setattr__(self, name, round_size(getattr(self, name)))

    def bucket(self) -> str:
        """Return the key under which the decision for this request is locked."""
        flags = (
            *("bidirectional", "bias", "ragged", "grad", "reserve", "packed", "deterministic"),
        )
        return " ".join(
            [
                self.device,
                self.dtype,
                str(self.kind),
                f"t{self.steps}xb{self.batch}",
                f"i{self.input_size}h{self.hidden_size}p{self.proj_size}l{self.num_layers}",
                *(name for name in flags if getattr(self, name)),
            ]
        )


class CellWeights(NamedTuple):
    """The parameters of one layer and direction, or gradients of them; G gates.

    Attributes:
        w_ih: [G * H, I of the layer]. w_hh: [G * H, P].
        b_ih, b_hh: [G * H]; None without biases.
        w_hr: [P, H]; None without a projection.
    """

    w_ih: Tensor
    w_hh: Tensor
    b_ih: Tensor | None = None
    b_hh: Tensor | None = None
    w_hr: Tensor | None = None

    def to(self, dtype: torch.dtype) -> CellWeights:
        """Return the same in another dtype."""
        cast = [None if weight is None else weight.to(dtype) for weight in self[2:]]
        return CellWeights(self.w_ih.to(dtype), self.w_hh.to(dtype), *cast)


@dataclass(frozen=True, slots=True, eq=False)
class RecurrentCall:
    """The tensors of a call, all of one dtype and on one device, lengths excepted.

    Attributes:
        kind: the equations.
        input: [T, B, I], any strides.
        hidden: the states at the start, [layers * D, B, P], any strides.
        cell: [layers * D, B, H] for an LSTM, else None.
        weights: per layer, and within a layer per direction; any strides.
        num_layers, bidirectional: as in the request.
        lengths: int64 [B] on the CPU, 1 to T each; None: all T.
        reserve: whether the result must hold the reserve.
        packed: what the implementation's own ``pack`` made of these weights; None: nothing.
    """

    kind: RecurrentKind
    input: Tensor
    hidden: Tensor
    cell: Tensor | None
    weights: tuple[CellWeights, ...]
    num_layers: int
    bidirectional: bool
    lengths: Tensor | None = None
    reserve: bool = False
    packed: object | None = None

    @property
    def tensors(self) -> list[Tensor]:
        """Every tensor of the call that may require a gradient."""
        found = (
            [self.input, self.hidden] if self.cell is None else [self.input, self.hidden, self.cell]
        )
        return found + [weight for cell in self.weights for weight in cell if weight is not None]

    def request(self, *, grad: bool, packed: bool = False) -> RecurrentRequest:
        """Return the call's request; reads sizes and dtypes only.

        Args:
            grad: whether gradients will be asked for.
            packed: whether the implementation may be given packed weights.
        """
        import torch

        first, shape = self.weights[0], self.input.shape
        return RecurrentRequest(
            self.input.device.type,
            str(self.input.dtype)[6:],
            self.kind,
            steps=shape[0],
            batch=shape[1],
            input_size=shape[2],
            hidden_size=first.w_hh.shape[0] // gates(self.kind),
            proj_size=0 if first.w_hr is None else first.w_hh.shape[1],
            num_layers=self.num_layers,
            bidirectional=self.bidirectional,
            bias=first.b_ih is not None,
            ragged=self.lengths is not None,
            grad=grad,
            reserve=self.reserve,
            packed=packed,
            deterministic=torch.are_deterministic_algorithms_enabled(),
        )


@dataclass(frozen=True, slots=True, eq=False)
class RecurrentResult:
    """What a forward returns. Nothing of it aliases the inputs.

    Attributes:
        output: [T, B, D * P] of the last layer, contiguous.
        hidden: the states at the end, [layers * D, B, P], contiguous.
        cell: [layers * D, B, H], contiguous, for an LSTM, else None.
        reserve: [layers * D, T, B, S] contiguous, float32 (float64 for float64 inputs), what a
            backward reads of each step; 0 where a sequence has no step. The columns are, each H
            wide: for an LSTM i, f, g, o, c and then h (P wide); for a GRU r, z, n, Wh h + bh of the
            third gate, and h; else h. None where it was not asked for.
    """

    output: Tensor
    hidden: Tensor
    cell: Tensor | None = None
    reserve: Tensor | None = None


@dataclass(frozen=True, slots=True, eq=False)
class RecurrentGradients:
    """What a backward returns, each in its input's shape and dtype.

    Attributes:
        input, hidden, cell: gradients of the input and of the states at the start.
        weights: gradients of the parameters, in their order.
    """

    input: Tensor
    hidden: Tensor
    cell: Tensor | None
    weights: tuple[CellWeights, ...]


class Forward(Protocol):
    """The callable that an implementation of ``recurrent/1`` loads.

    It may have ``differentiable = True``: it consists of operations that torch differentiates, and
    is called with autograd recording where gradients are wanted. It may have ``pack(kind, weights,
    num_layers, bidirectional)``, which returns what ``RecurrentCall.packed`` then holds. And it may
    have ``fast_path(request)``, see ``torchyard.dispatch``: its path takes (kind, weights, packed,
    latest, input, hidden, cell, num_layers, bidirectional), with the weights in torch's order,
    whether the call was given them as a ``PackedRecurrent``, what ``pack`` returned for them last
    (None where nothing, or where they have changed) and cell or None; and returns output and
    hidden, and of an LSTM the cell.
    """

    def __call__(self, call: RecurrentCall) -> RecurrentResult:
        """Compute the outputs. Must not keep, alias or change the inputs."""


class Backward(Protocol):
    """The callable that an implementation of ``recurrent_backward/1`` loads."""

    def __call__(
        self,
        call: RecurrentCall,
        reserve: Tensor,
        grad_output: Tensor | None,
        grad_hidden: Tensor | None,
        grad_cell: Tensor | None,
    ) -> RecurrentGradients:
        """Compute gradients from the reserve of any forward.

        Args:
            call: the forward's call.
            reserve: what it returned.
            grad_output, grad_hidden, grad_cell: gradients of the outputs, any strides; None is 0.
        """


_FIELDS: Final = (
    RequestField("device", "torch device type", "cpu"),
    RequestField("dtype", "dtype of input, states and weights", "float32"),
    RequestField("kind", "lstm, gru, rnn_tanh or rnn_relu", "lstm"),
    RequestField("shape", "steps,batch,input_size,hidden_size", "128,1,256,256"),
    RequestField("proj_size", "size after projection; 0: none", "0"),
    RequestField("num_layers", "layers", "1"),
    RequestField("bidirectional", "whether there are two directions", "false"),
    RequestField("bias", "whether there are biases", "true"),
    RequestField("ragged", "whether sequences have lengths of their own", "false"),
    RequestField("grad", "whether gradients will be asked for", "false"),
    RequestField("reserve", "whether the op records its own gradient", "false"),
    RequestField("packed", "whether weights were packed before", "false"),
    RequestField("deterministic", "whether algorithms must be deterministic", "false"),
)


def _parse_request(text: Mapping[str, str]) -> RecurrentRequest:
    """Build a request from text fields, those of ``torchyard explain recurrent``.

    Raises:
        ValueError: names the field, what was expected and what came.
    """
    try:
        kind = RecurrentKind(text["kind"])
    except ValueError:
        known = ", ".join(RecurrentKind)
        raise ValueError(f"kind: expected one of {known}, got {text['kind']!r}") from None
    steps, batch, input_size, hidden_size = parse_sizes("shape", text["shape"], 4)
    flags = ("bidirectional", "bias", "ragged", "grad", "reserve", "packed", "deterministic")
    return RecurrentRequest(
        text["device"],
        text["dtype"],
        kind,
        steps,
        batch,
        input_size,
        hidden_size,
        proj_size=parse_sizes("proj_size", text["proj_size"], 1)[0],
        num_layers=parse_sizes("num_layers", text["num_layers"], 1)[0],
        **{name: parse_flag(name, text[name]) for name in flags},
    )


def _representative_requests(device: str) -> Iterator[RecurrentRequest]:
    """Yield the requests whose decisions a release records: streaming, inference and training."""
    for kind in RecurrentKind:
        for dtype in ("float32", "bfloat16", "float16"):
            for steps, batch in ((1, 1), (128, 1), (128, 64)):
                for grad in (False, True):
                    yield RecurrentRequest(device, dtype, kind, steps, batch, 256, 256, grad=grad)


def _representative_backward_requests(device: str) -> Iterator[RecurrentRequest]:
    for kind in RecurrentKind:
        for dtype in ("float32", "bfloat16", "float16"):
            yield RecurrentRequest(device, dtype, kind, 128, 64, 256, 256, grad=True, reserve=True)


DEFINITIONS: Final = {
    FORWARD: ContractDefinition(
        contract=FORWARD,
        summary="recurrent layers in torch's layout: outputs and states",
        fields=_FIELDS,
        parse=_parse_request,
        cases=_representative_requests,
    ),
    BACKWARD: ContractDefinition(
        contract=BACKWARD,
        summary="recurrent layers in torch's layout: gradients",
        fields=_FIELDS,
        parse=_parse_request,
        cases=_representative_backward_requests,
    ),
}
