"""The launches of linear that are compiled."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import torch
from torch import Tensor

from torchyard_kernels.linear.contract import (
    LINEAR,
    LinearCall,
    Packed,
    Spread,
    WeightSpec,
    panel_shape,
)
from torchyard_kernels.linear.contract.quantised import data_shape, groups_of, option
from torchyard_programs import build, parse, trace
from torchyard_triton._launch import Launch
from torchyard_triton.compiled.specimens._specimen import Specimen
from torchyard_triton.linear._product import kind_of, product_launches
from torchyard_triton.linear._tiles import linear_tiles

__all__ = ["linear_specimens"]

_OUTPUTS, _DEPTH = 4096, 4096


@dataclass(frozen=True, slots=True, eq=False)
class _Function:
    """A recorded function, as the contract's Function."""

    text: str
    captured: tuple[Tensor, ...]
    inputs: tuple[str, ...]

    def apply(self, *inputs: Tensor) -> Tensor:
        result: Tensor = build(parse(self.text), self.inputs)(*inputs, *self.captured)
        return result

    def dtype(self, given: torch.dtype) -> torch.dtype:
        return given

    def spreads(self, shape: torch.Size) -> tuple[tuple[str, Spread], ...]:
        return tuple((str(tensor.dtype)[6:], Spread.COLUMN) for tensor in self.captured)


def _function(function: Callable[..., Any], *inputs: str) -> _Function:
    given = tuple((name, torch.bfloat16) for name in inputs)
    text, captured = trace(function, "specimen", given, torch.device("cpu"))
    return _Function(text, tuple(captured), inputs)


def _gelu(columns: int) -> _Function:
    scale = torch.zeros(columns, dtype=torch.bfloat16)
    return _function(lambda y: torch.nn.functional.gelu(y) * scale, "y")


def _normed(columns: int) -> _Function:
    scale = torch.zeros(columns, dtype=torch.bfloat16)
    return _function(lambda x: x * scale, "x")


def _swiglu() -> _Function:
    return _function(lambda gate, up: torch.nn.functional.silu(gate) * up, "gate", "up")


def _packed(format: str, **options: int) -> Packed:
    spec = WeightSpec(format, "bfloat16", _OUTPUTS, _DEPTH, tuple(options.items()))
    if format == "panels":
        shape = panel_shape(_OUTPUTS, _DEPTH, 2)
        return Packed(spec, (torch.empty(shape, dtype=torch.bfloat16),))
    panels, *_ = shape = data_shape(spec)
    groups = groups_of(spec)
    scales = torch.bfloat16 if option(spec, "group") else torch.float32
    zeros = groups if option(spec, "asymmetric") else 0
    return Packed(
        spec,
        (
            torch.empty(shape, dtype=torch.uint8),
            torch.empty((panels, groups, 64), dtype=scales),
            torch.empty((panels, zeros, 64), dtype=torch.uint8),
        ),
    )


def _plain(dtype: torch.dtype = torch.bfloat16) -> Tensor:
    return torch.empty((_OUTPUTS, _DEPTH), dtype=dtype)


def _x(rows: int, dtype: torch.dtype = torch.bfloat16) -> Tensor:
    return torch.empty((rows, _DEPTH), dtype=dtype)


# Program -> its call.
_CALLS: Final[Mapping[str, Callable[[], LinearCall]]] = {
    "plain": lambda: LinearCall(_x(1024), _plain()),
    "row": lambda: LinearCall(_x(1), _plain()),
    "panels": lambda: LinearCall(_x(1024), _packed("panels")),
    "float32": lambda: LinearCall(_x(1024, torch.float32), _plain(torch.float32)),
    "gelu": lambda: LinearCall(_x(1024), _plain(), None, _normed(_DEPTH), _gelu(_OUTPUTS)),
    "swiglu": lambda: LinearCall(_x(1024), _plain(), epilogue=_swiglu()),
    "int8": lambda: LinearCall(_x(1024), _packed("int8", group=0)),
    "int4": lambda: LinearCall(_x(1024), _packed("int4", group=64, asymmetric=1)),
    "int4-row": lambda: LinearCall(_x(1), _packed("int4", group=64), epilogue=_swiglu()),
}


def linear_specimens(architecture: str) -> Iterator[Specimen]:
    """Yield the kernels of products with an architecture's tiles."""
    for program in _CALLS:
        build = partial(_launch, architecture, program, 0)
        # A tile of 16 rows is below the size of some architectures' own instructions.
        small = program.endswith("row")
        yield Specimen(LINEAR, "linear_product", program, build, program != "float32", small)
    for program in ("row", "int4-row"):
        build = partial(_launch, architecture, program, 1)
        yield Specimen(LINEAR, "linear_finish", program, build, matrix=False)


def _launch(architecture: str, program: str, number: int) -> Launch:
    call = _CALLS[program]()
    launches, _ = product_launches(call, tiles=linear_tiles(architecture, kind_of(call)))
    return launches[number]
