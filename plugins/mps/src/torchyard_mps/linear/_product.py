"""``multiply``: a product with a weight, plain or packed, by one kernel."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor

from torchyard_kernels.linear.contract import LinearCall, Packed
from torchyard_kernels.linear.contract.quantised import BITS, groups_of, option
from torchyard_mps._launch import PREAMBLE, Launch, metal_text, or_one
from torchyard_mps._runner import run
from torchyard_mps.linear._functions import Functions, functions_of
from torchyard_mps.lowering import header, type_of_dtype

__all__ = ["multiply", "product"]

_TILE: Final = 32
_THREADS: Final = 128


@dataclass(frozen=True, slots=True, eq=False)
class _Weight:
    """A weight as the kernel takes it.

    Attributes:
        tensors: the weight's elements or codes, scales, zeros.
        strides: of batch, row and column of a plain weight.
        form: 0 plain, 1 or 2 panels, 8 or 4 bits of a code.
        words: of a panel. group: products with a common scale. groups: scales of an output.
        zeros: whether codes have zeros of their own.
    """

    tensors: tuple[Tensor, Tensor, Tensor]
    strides: tuple[int, int, int] = (0, 0, 0)
    form: int = 0
    words: int = 0
    group: int = 0
    groups: int = 1
    zeros: bool = False


def multiply(call: LinearCall) -> Tensor:
    """Compute ``linear/1``; equal calls give equal bits.

    Args:
        call: of float16, bfloat16 or float32; a packed weight without rounded activations.

    Raises:
        UnsupportedProgramError: a function has what the kernel does not compute.
        ValueError: functions captured more tensors than Metal has buffers for.
    """
    return product(
        call, call.x.dtype if call.epilogue is None else call.epilogue.dtype(call.x.dtype)
    )


def product(call: LinearCall, dtype: torch.dtype) -> Tensor:
    """Compute ``linear/1`` into a dtype: float32 sums, rounded once.

    Args:
        call: as of :func:`multiply`.
        dtype: of the result; without an epilogue any of the dtypes of calls.
    """
    x = call.x
    batched = not isinstance(call.weight, Packed) and call.weight.ndim == 3
    batch = x.shape[0] if batched else 1
    depth = x.shape[-1]
    rows = x.shape[1] if batched else math.prod(x.shape[:-1])
    flat = x.reshape(batch, rows, depth)
    weight = _weight(call.weight)
    out = torch.empty(call.result_shape(), dtype=dtype, device=x.device)
    outputs = out.shape[-1]
    if not out.numel():
        return out
    functions = functions_of(call, dtype)
    sizes = (
        *(*flat.stride(), *weight.strides, rows, outputs, depth),
        *(weight.words, weight.groups, *functions.strides),
    )
    bias = flat if call.bias is None else call.bias.contiguous()
    buffers = (
        *(or_one(tensor) for tensor in (flat, *weight.tensors, bias)),
        *(out, torch.tensor(sizes, device=x.device), *functions.captured),
    )
    groups = (-(-rows // _TILE) * -(-outputs // _TILE), batch)
    source = _source(call, weight, dtype, functions)
    run(Launch(source, "linear_product", groups, _THREADS, buffers, outputs=(5,)))
    return out


def _weight(weight: Tensor | Packed) -> _Weight:
    if not isinstance(weight, Packed):
        strides = weight.stride() if weight.ndim == 3 else (0, *weight.stride())
        batch, row, column = strides
        return _Weight(
            (weight, weight, weight.new_zeros(1, dtype=torch.uint8)), (batch, row, column)
        )
    spec, data = weight.spec, weight.tensors[0]
    if spec.format not in BITS:
        none = data.new_zeros(1, dtype=torch.uint8)
        return _Weight((data, data, none), form=data.shape[3], words=data.shape[1])
    _, scale, zero = weight.tensors
    return _Weight(
        (data, scale, zero),
        form=BITS[spec.format],
        words=data.shape[1],
        group=option(spec, "group"),
        groups=groups_of(spec),
        zeros=zero.shape[1] > 0,
    )


def _source(call: LinearCall, weight: _Weight, dtype: torch.dtype, functions: Functions) -> str:
    stored, scale, _ = weight.tensors
    lines = [
        f"typedef {type_of_dtype(call.x.dtype)} T;",
        f"typedef {type_of_dtype(dtype)} Out;",
        f"typedef {type_of_dtype(stored.dtype)} Stored;",
        f"typedef {type_of_dtype(scale.dtype)} Scale;",
        f"#define FORM {weight.form}",
        f"#define GROUP {weight.group}",
        f"#define ZEROS {str(weight.zeros).lower()}",
        f"#define BIAS {str(call.bias is not None).lower()}",
        f"#define GATED {str(call.gated).lower()}",
        f"#define BEFORE {functions.before}",
        f"#define AFTER {functions.after}",
    ]
    buffers = functions.buffers
    lines += ["struct Captured {", *(f"  {kind} {name};" for kind, name, _ in buffers), "};"]
    declared = "".join(f"{kind} {name} [[buffer({place})]], " for kind, name, place in buffers)
    kernel = metal_text("linear").replace("CAPTURED uint2", f"{declared}uint2")
    kernel = kernel.replace("{CAPTURED}", f"{{{', '.join(name for _, name, _ in buffers)}}}")
    top = header() if functions.sources else PREAMBLE
    return "\n".join([top, *functions.sources, *lines, kernel])
