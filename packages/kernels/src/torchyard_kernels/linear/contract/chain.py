"""Chains of stages: what a layer computes for one row, products included, in one call.

For the single row of a decoded token, calling operators takes longer than their arithmetic. So the
callable that an implementation of ``linear/1`` loads may have a method ``chain``, which takes a
list of stages and returns one function that runs them all. A layer uses it where the registry chose
that callable for each of the chain's products, as long as no setting changes that affects
decisions.

This module imports torch only for type checkers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

from torchyard_kernels.linear.contract import Packed, Spread

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

__all__ = [
    "MEMORY",
    "OUTPUT",
    "Chain",
    "Copy",
    "Form",
    "OffersChain",
    "Operand",
    "Place",
    "Pointwise",
    "Product",
    "Scale",
    "Stage",
]

# Bases of places other than inputs.
OUTPUT: Final = -1
MEMORY: Final = -2


@dataclass(frozen=True, slots=True)
class Form:
    """The required dtype, sizes and strides of a tensor.

    Attributes:
        dtype: its name.
        sizes: of up to four dimensions.
        strides: in elements; -1 for one that is free, as is that of a size of 1.
    """

    dtype: str
    sizes: tuple[int, ...]
    strides: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Place:
    """The position of a rectangle of values.

    Attributes:
        base: the index of an input, OUTPUT or MEMORY.
        offset: bytes from there to element (0, 0).
        row, column: strides in elements; a negative row is the stride of dimension ``-1 - row`` of
            the input.
    """

    base: int
    offset: int = 0
    row: int = 0
    column: int = 1


@dataclass(frozen=True, slots=True, eq=False)
class Product:
    """``out = x @ weight.T + bias`` for one row, contiguous, in the weight's dtype."""

    x: Place
    out: Place
    weight: Packed
    bias: Place | None = None


@dataclass(frozen=True, slots=True)
class Scale:
    """``out = 1 / sqrt(mean(squares) + epsilon)`` of contiguous float32, as one float32."""

    squares: Place
    out: Place
    columns: int
    epsilon: float


@dataclass(frozen=True, slots=True)
class Operand:
    """A value that a program reads.

    Attributes:
        name: of the program's input.
        dtype: of the stored values, and for torch's promotion.
        spread: ONE, COLUMN (a value for each column) or TILE.
        place: where; strides that the spread does not use are 0.
    """

    name: str
    dtype: str
    spread: Spread
    place: Place


@dataclass(frozen=True, slots=True)
class Pointwise:
    """A program of ``torchyard_programs`` over a rectangle of [rows, columns].

    Attributes:
        text: the program, without captured tensors; numbers in it are its own.
        operands: of each input, in the program's order.
        results: dtype and place of each result; they share no memory with one another, nor with
            operands of other places.
    """

    text: str
    operands: tuple[Operand, ...]
    results: tuple[tuple[str, Place], ...]
    rows: int
    columns: int


@dataclass(frozen=True, slots=True)
class Copy:
    """Copy rows of some bytes.

    Attributes:
        x, out: their rows are bytes apart, unless ``out`` takes its from an input; then ``column``
            of ``out`` is the bytes of an element.
    """

    x: Place
    out: Place
    rows: int
    row_bytes: int


Stage = Product | Scale | Pointwise | Copy


@dataclass(frozen=True, slots=True, eq=False)
class Chain:
    """Stages that run one after the other.

    Attributes:
        device: torch device type of all tensors; the weights lie there.
        inputs: of each argument.
        output: of the result, which is contiguous.
        memory: bytes of working memory, a multiple of 64.
        stages: at most 16.
    """

    device: str
    inputs: tuple[Form, ...]
    output: Form
    memory: int
    stages: tuple[Stage, ...]


class OffersChain(Protocol):
    """A callable of ``linear/1`` that runs chains."""

    def chain(self, chain: Chain) -> Callable[..., Tensor | None] | None:
        """Return the function that runs a chain, which keeps the weights; None where there is none.

        It takes the inputs by position, and answers None, without an effect, unless every one is of
        torch.Tensor or torch.nn.Parameter itself, of its form, on the device, not lazily negated,
        and not differentiated while gradients are recorded. It writes to the inputs that stages
        write to. Products have the bits of the callable's own; between them values are rounded
        where they are stored.
        """
