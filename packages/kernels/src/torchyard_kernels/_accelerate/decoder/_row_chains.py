"""What a decoder's layer does to one row, before its attention and after it, as chains."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import torch
from torch import Tensor

from torchyard_kernels._accelerate.decoder._form import DecoderForm
from torchyard_kernels.linear.contract import Packed, Spread
from torchyard_kernels.linear.contract.chain import (
    MEMORY,
    OUTPUT,
    Chain,
    Copy,
    Form,
    Operand,
    Place,
    Pointwise,
    Product,
    Scale,
    Stage,
)
from torchyard_programs import trace

__all__ = ["Weight", "after_attention", "before_attention"]

# A packed weight and a layer's bias, where it has one.
Weight = tuple[Packed, Tensor | None]
# What working memory is laid out by.
_LINE: Final = 64
_ONE_ROW: Final = 0


class _Builder:
    """A chain in the making, for tensors of one dtype."""

    def __init__(self, dtype: torch.dtype, device: torch.device) -> None:
        self.dtype = dtype
        self.name = str(dtype)[6:]
        self.device = device
        self.inputs: list[Form] = []
        self.stages: list[Stage] = []
        self.memory = 0

    def input(self, *sizes: int, strides: tuple[int, ...] | None = None) -> Place:
        """Return where a new input lies; contiguous, unless strides are given."""
        if strides is None:
            steps = [1]
            for size in reversed(sizes[1:]):
                steps.insert(0, steps[0] * size)
            strides = tuple(steps)
        self.inputs.append(Form(self.name, sizes, strides))
        return Place(len(self.inputs) - 1)

    def room(self, count: int, dtype: torch.dtype | None = None) -> Place:
        """Return where so many values have room in working memory."""
        place = Place(MEMORY, self.memory)
        size = count * (dtype or self.dtype).itemsize
        self.memory += -(-size // _LINE) * _LINE
        return place

    def at(self, place: Place, index: int, row: int = _ONE_ROW) -> Place:
        """Return the rectangle that begins with a value further on."""
        return Place(place.base, place.offset + index * self.dtype.itemsize, row)

    def pointwise(
        self,
        function: Callable[..., Any],
        operands: dict[str, tuple[Place, Spread]],
        results: tuple[tuple[str, Place], ...],
        shape: tuple[int, int],
        dtypes: dict[str, torch.dtype] | None = None,
    ) -> None:
        """Add a program.

        Raises:
            torchyard_programs.ProgramError: the function does something that cannot be recorded.
        """
        held = {name: (dtypes or {}).get(name, self.dtype) for name in operands}
        text, captured = trace(function, "accelerate", tuple(held.items()), self.device)
        if captured:
            raise ValueError("accelerate: expected functions without tensors of their own")
        given = tuple(
            Operand(
                name,
                str(held[name])[6:],
                spread,
                Place(place.base, place.offset, place.row, 0 if spread is Spread.ONE else 1),
            )
            for name, (place, spread) in operands.items()
        )
        self.stages.append(Pointwise(text, given, results, *shape))

    def product(self, x: Place, weight: Weight, out: Place | None = None) -> Place:
        """Add a product, and an input for its bias; return the place of the result."""
        packed, bias = weight
        place = self.room(packed.spec.rows) if out is None else out
        of_bias = None if bias is None else self.input(packed.spec.rows)
        self.stages.append(Product(x, place, packed, of_bias))
        return place

    def norm(self, x: Place, weight: Place, width: int, epsilon: float) -> Place:
        """Add an RMSNorm; return the place of the result."""
        squares, scale = self.room(width, torch.float32), self.room(1, torch.float32)
        normed, dtype = self.room(width), self.dtype
        self.pointwise(
            lambda x: x.float() * x.float(),
            {"x": (x, Spread.TILE)},
            (("float32", squares),),
            (1, width),
        )
        self.stages.append(Scale(squares, scale, width, epsilon))
        self.pointwise(
            lambda x, scale, weight: weight * (x.float() * scale).to(dtype),
            {
                "x": (x, Spread.TILE),
                "scale": (scale, Spread.ONE),
                "weight": (weight, Spread.COLUMN),
            },
            ((self.name, normed),),
            (1, width),
            {"scale": torch.float32},
        )
        return normed

    def done(self, *sizes: int) -> Chain:
        """Return the chain of what was added, which makes a tensor of these sizes."""
        made = Form(self.name, sizes, (0,) * len(sizes))
        device = self.device.type
        return Chain(device, tuple(self.inputs), made, self.memory, tuple(self.stages))


def before_attention(
    dtype: torch.dtype,
    device: torch.device,
    width: int,
    size: int,
    heads: tuple[int, int],
    projections: Weight,
    form: DecoderForm,
) -> Chain:
    """Return the chain of norm, projections and rotation.

    Its inputs are x [1, 1, width], the norm's weight, cosines and sines [1, 1, size], the places of
    the cache [1, heads of keys, 1, size] that the key and the value are written to, and the
    projections' bias if there is one. It makes the query [1, heads, 1, size].

    Args:
        dtype, device: of all tensors.
        width: of x.
        size: of a head.
        heads: of queries, and of keys.
        projections: to queries, keys and values.
        form: of the layer.

    Raises:
        ValueError: heads of an odd size.
    """
    if size % 2:
        raise ValueError(f"accelerate: expected heads of an even size, got {size}")
    build = _Builder(dtype, device)
    x, weight = build.input(1, 1, width), build.input(width)
    cos, sin = build.input(1, 1, size), build.input(1, 1, size)
    free = (-1, -1, -1, 1)
    key, value = (build.input(1, heads[1], 1, size, strides=free) for _ in range(2))
    normed = build.norm(x, weight, width, form.epsilons[0])
    all_heads = build.product(normed, projections)
    half, of_dimension = size // 2, -1 - 1

    def rotate(first: int, count: int, to: Place, row: int) -> None:
        build.pointwise(
            lambda a, b, cos, sin, cos_b, sin_b: (a * cos - b * sin, b * cos_b + a * sin_b),
            {
                "a": (build.at(all_heads, first, size), Spread.TILE),
                "b": (build.at(all_heads, first + half, size), Spread.TILE),
                "cos": (cos, Spread.COLUMN),
                "sin": (sin, Spread.COLUMN),
                "cos_b": (build.at(cos, half), Spread.COLUMN),
                "sin_b": (build.at(sin, half), Spread.COLUMN),
            },
            ((build.name, build.at(to, 0, row)), (build.name, build.at(to, half, row))),
            (count, half),
        )

    queries, keys = heads[0] * size, heads[1] * size
    rotate(0, heads[0], Place(OUTPUT), size)
    rotate(queries, heads[1], key, of_dimension)
    item = dtype.itemsize
    values = Place(MEMORY, all_heads.offset + (queries + keys) * item, size * item)
    to = Place(value.base, 0, of_dimension, item)
    build.stages.append(Copy(values, to, heads[1], size * item))
    return build.done(1, heads[0], 1, size)


def after_attention(
    dtype: torch.dtype,
    device: torch.device,
    width: int,
    weights: tuple[Weight, Weight, Weight],
    act: Callable[[Tensor], Tensor],
    form: DecoderForm,
) -> Chain:
    """Return the chain of the output's projection, the norm, the gated layer, and both sums.

    Its inputs are what attention gave [1, 1, heads * size], the layer's x [1, 1, width], the norm's
    weight, and a bias for each weight that has one. It makes the layer's output [1, 1, width].

    Args:
        dtype, device: of all tensors.
        width: of x.
        weights: of the output's projection, of gate and up, of down.
        act: of the gate.
        form: of the layer.

    Raises:
        torchyard_programs.ProgramError: the activation cannot be recorded.
    """
    build = _Builder(dtype, device)
    output, gate_up, down = weights
    attended = build.input(1, 1, output[0].spec.columns)
    x, weight = build.input(1, 1, width), build.input(width)

    def add(a: Place, b: Place, to: Place) -> None:
        operands = {"a": (a, Spread.TILE), "b": (b, Spread.TILE)}
        build.pointwise(lambda a, b: a + b, operands, ((build.name, to),), (1, width))

    hidden = build.room(width)
    add(x, build.product(attended, output), hidden)
    normed = build.norm(hidden, weight, width, form.epsilons[1])
    both = build.product(normed, gate_up)
    inner = down[0].spec.columns
    gated = build.room(inner)
    build.pointwise(
        lambda gate, up: act(gate) * up,
        {"gate": (both, Spread.TILE), "up": (build.at(both, inner), Spread.TILE)},
        ((build.name, gated),),
        (1, inner),
    )
    add(hidden, build.product(gated, down), Place(OUTPUT))
    return build.done(1, 1, width)
