"""The contract ``linear/1``.

With M rows of x, N outputs, K products per output and W the weight [N, K]::

    y[m, n]   = sum_k prologue(x)[m, k] * W[n, k] + bias[n]
    out[m, n] = epilogue(y)[m, n]

Both functions are pointwise and may be absent. Products and sums are float32, or float64 where the
inputs are. The sum over k may be rounded to x's dtype before the bias is added; out is rounded to
it. A prologue's result is rounded to x's dtype; an epilogue sees y in float32, or rounded to x's
dtype, and out has the dtype that torch's promotion gives its result for inputs of x's dtype. An
epilogue of two inputs takes the halves of y: W holds the rows of [gate; up], and out has N / 2
columns. Rows of x do not affect one another, NaN and infinities included.

A plugin that implements the contract imports this package, which imports torch only for type
checkers and inside of calls.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import lru_cache
from typing import TYPE_CHECKING, Final, Protocol

from torchyard import ContractDefinition, RequestField, round_size
from torchyard_kernels._request_fields import parse_flag, parse_sizes
from torchyard_kernels.linear.contract.weights import (
    PANEL_COLUMNS,
    Packed,
    WeightSpec,
    panel_shape,
)

if TYPE_CHECKING:
    import torch
    from torch import Tensor

__all__ = [
    "DEFINITIONS",
    "LINEAR",
    "PANEL_COLUMNS",
    "PLAIN_WEIGHT",
    "SECOND_FACTOR",
    "Function",
    "Linear",
    "LinearCall",
    "LinearRequest",
    "Packed",
    "Spread",
    "WeightSpec",
    "panel_shape",
]

LINEAR: Final = "linear/1"
# What a path is given in place of a packed weight's shape: see :class:`Linear`.
PLAIN_WEIGHT: Final = -1
SECOND_FACTOR: Final = -2


class Spread(StrEnum):
    """How a captured tensor broadcasts to rows and columns."""

    SCALAR = "scalar"
    """One value, of no dimensions: torch promotes after tensors of any."""
    ONE = "one"
    ROW = "row"
    COLUMN = "column"
    TILE = "tile"


class Function(Protocol):
    """A pointwise function that was recorded: a program and the tensors that it captured."""

    @property
    def text(self) -> str:
        """The program's canonical text, see ``torchyard_programs``."""

    @property
    def captured(self) -> tuple[Tensor, ...]:
        """The captured tensors, in the program's order; they broadcast to the result."""

    @property
    def inputs(self) -> tuple[str, ...]:
        """What the program calls its inputs: ``x``, ``y``, or ``gate`` and ``up``."""

    def apply(self, *inputs: Tensor) -> Tensor:
        """Return the result by torch's operators."""

    def dtype(self, given: torch.dtype) -> torch.dtype:
        """Return the result's dtype for inputs of a dtype."""

    def spreads(self, shape: torch.Size) -> tuple[tuple[str, Spread], ...]:
        """Return dtype and spread of each captured tensor over a shape [..., columns]."""


@dataclass(frozen=True, slots=True)
class LinearRequest:
    """Describe a call, without its tensors.

    Attributes:
        device: torch device type.
        dtype: the name of x's dtype.
        rows: M, the product of x's sizes but the last; per batch entry. Above 16 rounded up to a
            power of two, so that a growing batch does not ask for a decision at every step.
        outputs: N.
        depth: K.
        batch: how many weights there are, each with its own rows of x: 1 for a linear layer.
        weight: the format of a packed weight; empty for a plain tensor.
        weight_options: the packed weight's options.
        bias: whether there is one.
        deterministic: whether torch was told to use deterministic algorithms.
        prologue, epilogue: the functions' programs; empty where there are none.
        gated: whether the epilogue takes the halves of y.
        prologue_captured, epilogue_captured: dtype and spread of each captured tensor.
    """

    device: str
    dtype: str
    rows: int
    outputs: int
    depth: int
    batch: int = 1
    weight: str = ""
    weight_options: tuple[tuple[str, int], ...] = ()
    bias: bool = False
    deterministic: bool = False
    prologue: str = ""
    epilogue: str = ""
    gated: bool = False
    prologue_captured: tuple[tuple[str, str], ...] = ()
    epilogue_captured: tuple[tuple[str, str], ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "rows", round_size(self.rows))

    def bucket(self) -> str:
        """Return the key under which the decision for this request is locked.

        Of functions it says that there are some: a lock is about sizes, not about programs.
        """
        words = [self.device, self.dtype, f"{self.batch}x{self.rows}x{self.outputs}x{self.depth}"]
        if self.weight:
            options = (f"{name}={value}" for name, value in self.weight_options)
            words.append(f"weight={','.join((self.weight, *options))}")
        names = ("bias", "deterministic", "prologue", "epilogue", "gated")
        words += [name for name in names if getattr(self, name)]
        return " ".join(words)


@dataclass(frozen=True, slots=True, eq=False)
class LinearCall:
    """The tensors of a call.

    Attributes:
        x: [..., K], any strides; [B, M, K] where the weight is [B, N, K].
        weight: [N, K] or [B, N, K], any strides and x's dtype; or packed, [N, K].
        bias: [N], x's dtype; None adds nothing.
        prologue, epilogue: run before and after; None changes nothing.
    """

    x: Tensor
    weight: Tensor | Packed
    bias: Tensor | None = None
    prologue: Function | None = None
    epilogue: Function | None = None

    @property
    def gated(self) -> bool:
        """Whether the epilogue takes the halves of y."""
        return self.epilogue is not None and len(self.epilogue.inputs) == 2

    @property
    def tensors(self) -> list[Tensor]:
        """Every tensor of the call, those that functions captured included."""
        weight = self.weight
        found = [self.x, *(weight.tensors if isinstance(weight, Packed) else (weight,))]
        if self.bias is not None:
            found.append(self.bias)
        for function in (self.prologue, self.epilogue):
            if function is not None:
                found += function.captured
        return found

    def result_shape(self) -> torch.Size:
        """Return the shape of the result."""
        import torch

        weight = self.weight
        outputs = weight.spec.rows if isinstance(weight, Packed) else weight.shape[-2]
        return torch.Size((*self.x.shape[:-1], outputs // 2 if self.gated else outputs))

    def request(self) -> LinearRequest:
        """Return the call's request; reads sizes and dtypes only."""
        import torch

        x, weight = self.x, self.weight
        bias, deterministic = self.bias is not None, torch.are_deterministic_algorithms_enabled()
        sizes = x.device.type, x.dtype, x.shape
        if isinstance(weight, Packed):
            spec = weight.spec
            shape = (spec.rows, spec.columns)
            request = _request(*sizes, shape, spec.format, spec.options, bias, deterministic)
        else:
            request = _request(*sizes, tuple(weight.shape), "", (), bias, deterministic)
        before, after = self.prologue, self.epilogue
        if before is None and after is None:
            return request
        return replace(
            request,
            prologue="" if before is None else before.text,
            epilogue="" if after is None else after.text,
            gated=self.gated,
            prologue_captured=() if before is None else before.spreads(x.shape),
            epilogue_captured=() if after is None else after.spreads(self.result_shape()),
        )


# The layers of a model make the same request, and building it takes as long as a short call.
@lru_cache(maxsize=1024)
def _request(
    device: str,
    dtype: torch.dtype,
    x: torch.Size,
    weight: tuple[int, ...],
    format: str,
    options: tuple[tuple[str, int], ...],
    bias: bool,
    deterministic: bool,
) -> LinearRequest:
    return LinearRequest(
        device=device,
        dtype=str(dtype)[6:],
        rows=x[1] if len(weight) == 3 else math.prod(x[:-1]),
        outputs=weight[-2],
        depth=weight[-1],
        batch=weight[0] if len(weight) == 3 else 1,
        weight=format,
        weight_options=options,
        bias=bias,
        deterministic=deterministic,
    )


class Linear(Protocol):
    """The callable that an implementation of ``linear/1`` loads.

    May have ``fast_path(request)``: see ``torchyard.dispatch``. The path takes (x, weight, form,
    bias). The weight and the form are: of ``panels``, ``data`` and (N, K), to which x has to fit;
    of another format, its tensors and None; of a plain weight [N, K], the tensor and
    ``PLAIN_WEIGHT``; and of ``matmul`` and ``bmm``, the second factor, [K, N] or [B, K, N] for x
    [B, M, K], and ``SECOND_FACTOR``. For a request with functions the path also takes the tensors
    that each of the two functions captured, as two tuples.
    """

    def __call__(self, call: LinearCall) -> Tensor:
        """Return out, contiguous. Must not keep, alias or change inputs."""


_FIELDS: Final = (
    RequestField("device", "torch device type", "cpu"),
    RequestField("dtype", "dtype of x and of the weight", "float16"),
    RequestField("shape", "rows,outputs,depth: M,N,K", "1,4096,4096"),
    RequestField("batch", "weights, each with rows of its own", "1"),
    RequestField("weight", "format of a packed weight; empty: a plain tensor", ""),
    RequestField("weight_options", "name=value of the packed weight, commas between", ""),
    RequestField("bias", "whether there is one", "false"),
    RequestField("deterministic", "whether algorithms must be deterministic", "false"),
    RequestField("prologue", "its program, lines joined by \\n", ""),
    RequestField("epilogue", "its program, lines joined by \\n", ""),
    RequestField("gated", "whether the epilogue takes halves", "false"),
    RequestField("prologue_captured", "dtype:spread of each captured tensor, commas between", ""),
    RequestField("epilogue_captured", "dtype:spread of each captured tensor, commas between", ""),
)


def _parse_request(text: Mapping[str, str]) -> LinearRequest:
    """Build a request from text fields, those of ``torchyard explain linear``.

    Raises:
        ValueError: names the field, what was expected and what came.
    """
    rows, outputs, depth = parse_sizes("shape", text["shape"], 3)
    return LinearRequest(
        device=text["device"],
        dtype=text["dtype"],
        rows=rows,
        outputs=outputs,
        depth=depth,
        batch=parse_sizes("batch", text["batch"], 1)[0],
        weight=text["weight"],
        weight_options=_options(text["weight_options"]),
        bias=parse_flag("bias", text["bias"]),
        deterministic=parse_flag("deterministic", text["deterministic"]),
        prologue=text["prologue"].replace("\\n", "\n"),
        epilogue=text["epilogue"].replace("\\n", "\n"),
        gated=parse_flag("gated", text["gated"]),
        prologue_captured=_captured("prologue_captured", text["prologue_captured"]),
        epilogue_captured=_captured("epilogue_captured", text["epilogue_captured"]),
    )


def _representative_requests(device: str) -> Iterator[LinearRequest]:
    """Yield the requests whose decisions a release records: decoding, prefill, batches."""
    for dtype in ("float32", "bfloat16", "float16"):
        for rows in (1, 16, 128, 1024):
            for weight in ("", "panels"):
                yield LinearRequest(device, dtype, rows, 4096, 4096, weight=weight)
        yield LinearRequest(device, dtype, 128, 128, 64, batch=32)


DEFINITIONS: Final = {
    LINEAR: ContractDefinition(
        contract=LINEAR,
        summary="products with a weight, plain or packed, and a bias",
        fields=_FIELDS,
        parse=_parse_request,
        cases=_representative_requests,
    ),
}


def _options(text: str) -> tuple[tuple[str, int], ...]:
    options = []
    for part in text.split(",") if text else ():
        name, _, value = part.partition("=")
        if not name.isidentifier() or not value.isdigit():
            raise ValueError(f"weight_options: expected name=value such as group=128, got {part!r}")
        options.append((name, int(value)))
    return tuple(options)


def _captured(name: str, text: str) -> tuple[tuple[str, str], ...]:
    captured = []
    for part in text.split(",") if text else ():
        dtype, _, spread = part.partition(":")
        if not dtype.isidentifier() or spread not in list(Spread):
            raise ValueError(f"{name}: expected dtype:spread such as float32:row, got {part!r}")
        captured.append((dtype, spread))
    return tuple(captured)
