"""The launches of pointwise functions that are compiled."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, Final

import torch

from torchyard_kernels.pointwise.contract import (
    POINTWISE,
    Operand,
    PointwiseCall,
    PointwiseRequest,
)
from torchyard_programs import trace
from torchyard_triton._launch import Launch
from torchyard_triton.compiled.specimens._specimen import Specimen
from torchyard_triton.pointwise._map import map_launch

__all__ = ["pointwise_specimens"]


def _adamw(p: Any, m: Any, v: Any, g: Any, rate1: Any, rate2: Any, root: Any, size: Any) -> Any:
    m, v = (g - m) * rate1 + m, (g * g - v) * rate2 + v
    return p + m / (torch.sqrt(v) * root + 1e-8) * size, m, v


def _gelu(x: Any, row: Any) -> Any:
    return torch.nn.functional.gelu(x, approximate="tanh") * row


# Program -> function, operands, how many of the first are written to.
_MAPS: Final[Mapping[str, tuple[Callable[..., Any], tuple[Operand, ...], int]]] = {
    "scale": (lambda x, a: x * a, (("bfloat16", 1), ("float", -1)), 1),
    "lerp": (torch.lerp, (("float32", 1), ("float32", 1), ("float", -1)), 1),
    "adamw": (_adamw, (*((("float32", 1),) * 4), *((("float", -1),) * 4)), 3),
    "adamw-bf16": (_adamw, (*((("bfloat16", 1),) * 4), *((("float", -1),) * 4)), 3),
    # The row broadcasts: places are computed from sizes and strides.
    "gelu-row": (_gelu, (("bfloat16", 1), ("bfloat16", 1)), 0),
    "compare": (lambda x, y: torch.where(x > y, x, y) == 1, (("int64", 1), ("int32", 1)), 0),
}


def pointwise_specimens(architecture: str) -> Iterator[Specimen]:
    """Yield a map with each program; of any architecture the same."""
    del architecture
    for program in _MAPS:
        build = partial(_launch, program)
        yield Specimen(POINTWISE, "pointwise_map", program, build, matrix=False)


def _launch(program: str) -> Launch:
    function, operands, written = _MAPS[program]
    names = tuple((f"x{number}", None) for number in range(len(operands)))
    text, _ = trace(function, "specimen", names, torch.device("cpu"))
    lists: list[list[Any]] = [
        [0.5] * 2
        if ndim < 0
        else [torch.empty((64, 256), dtype=getattr(torch, name)) for _ in range(2)]
        for name, ndim in operands
    ]
    if program == "gelu-row":
        lists[1] = [tensor[0] for tensor in lists[1]]
    out = tuple(lists[:written])
    stored = tuple(name for name, _ in operands[:written])
    request = PointwiseRequest("cpu", text, operands, (), stored, 2)
    return map_launch(PointwiseCall(request, tuple(lists), (), out))[0]
