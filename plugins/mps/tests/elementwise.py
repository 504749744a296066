"""Programs of (x, y, i, j) computed element by element, in Metal on this machine."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import torch
from torch import Tensor

from torchyard_conformance import metal
from torchyard_mps.lowering import TYPES, header, lower
from torchyard_programs import Input, trace

__all__ = ["INPUTS", "computed"]

INPUTS: Final = (
    Input("x", torch.float32),
    Input("y", torch.float32),
    Input("i", torch.int64),
    Input("j", torch.int64),
)
_THREADS: Final = 32
_Function = Callable[..., Any]


def computed(
    cases: list[tuple[_Function, tuple[Tensor, ...], torch.dtype]],
) -> tuple[list[Tensor], list[metal.Finding]]:
    """Return each function's values on its four vectors, and what was found of all.

    Functions of one dtype are one kernel, since to start one takes longer than to compute it.
    Vectors have equal numbers of elements, a multiple of 32.
    """
    parts, kernels = [header()], []
    for dtype in sorted({dtype for _, _, dtype in cases}, key=str):
        chosen = [at for at, (_, _, of) in enumerate(cases) if of == dtype]
        parts.append(_source(str(dtype).removeprefix("torch."), chosen, cases))
        kernels.append((dtype, chosen))
    source, found = "\n".join(parts), []
    results: dict[int, Tensor] = {}
    for dtype, chosen in kernels:
        columns = [torch.stack([cases[at][1][part] for at in chosen]) for part in range(4)]
        out = metal.Empty(tuple(columns[0].shape), dtype)
        grid = (columns[0].shape[1] // _THREADS, len(chosen))
        name = f"kernel_{str(dtype).removeprefix('torch.')}"
        outcome = metal.run(
            source, name, grid, _THREADS, [*columns, out], orders=1, address_sanitizer=False
        )
        found += outcome.findings
        results |= dict(zip(chosen, outcome.outputs["out"], strict=True))
    return [results[at] for at in range(len(cases))], found


def _source(dtype: str, chosen: list[int], cases: list[Any]) -> str:
    """Return the kernel that computes some functions, a row of the grid each."""
    parts, calls = [], []
    for row, at in enumerate(chosen):
        inputs = tuple((item.name, item.dtype) for item in INPUTS)
        text, captured = trace(cases[at][0], "fn", inputs, torch.device("cpu"))
        assert not captured
        parts.append(lower(text, INPUTS, (), name=f"program_{at}", result=dtype).source)
        calls.append(
            f"    case {row}:\n"
            f"      out[at] = program_{at}(x[at], y[at], i[at], j[at], none_{dtype});\n"
            "      break;\n"
        )
    # A global, since a program's layout is in constant memory.
    parts.append(f"constant long none_{dtype}[1] = {{0}};\n")
    return "\n".join(parts) + (
        f"kernel void kernel_{dtype}(device const float* x [[buffer(0)]], "
        "device const float* y [[buffer(1)]], device const long* i [[buffer(2)]], "
        f"device const long* j [[buffer(3)]], device {TYPES[dtype]}* out [[buffer(4)]], "
        "uint2 place [[thread_position_in_grid]], uint2 size [[threads_per_grid]]) {\n"
        "  const uint at = place.y * size.x + place.x;\n  switch (place.y) {\n"
        f"{''.join(calls)}  }}\n}}\n"
    )
