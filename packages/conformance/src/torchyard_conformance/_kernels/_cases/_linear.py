"""Cases of ``linear/1``."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Final

import torch
from torch import Tensor

import torchyard_kernels
from torchyard_conformance._kernels._case import Case, Given, implementation, named_cases
from torchyard_conformance._kernels._cases._recorded import record
from torchyard_kernels.linear.contract import (
    LINEAR,
    LinearCall,
    LinearRequest,
    Packed,
    WeightSpec,
)

__all__ = ["GRIDS"]

# In place of a plain tensor: how a weight is packed.
_PACKED: Final[Mapping[str, Mapping[str, Any]]] = {
    "int8": {"bits": 8},
    "int8-groups": {"bits": 8, "group_size": 32},
    "int4": {"bits": 4, "group_size": 32},
    "int4-asymmetric": {"bits": 4, "group_size": 64, "symmetric": False},
}


@dataclass(frozen=True)
class LinearCase(Case):
    """A product.

    Attributes:
        dtype, rows, outputs, depth, bias: of the call.
        batch_size: how many products; 0: one, of two dimensions.
        packed: ``panels`` or a key of _PACKED; empty: a plain weight.
        function: ``activation``, ``scale``, ``residual``, ``norm`` or ``gated``; empty: none.
        bad: ``x`` or ``weight``: what holds NaN and infinities.
    """

    dtype: str = "float32"
    rows: int = 5
    outputs: int = 45
    depth: int = 67
    bias: bool = True
    batch_size: int = 0
    packed: str = ""
    function: str = ""
    bad: str = ""

    contract: ClassVar[str] = LINEAR
    batch: ClassVar[Mapping[str, int]] = {"x": 0, "out": 0}
    fixed: ClassVar[frozenset[str]] = frozenset({"tensors"})

    def make(self) -> Given:
        """Return the call."""
        generator = torch.Generator().manual_seed(7)
        dtype: torch.dtype = getattr(torch, self.dtype)

        def normal(*shape: int) -> Tensor:
            return torch.randn(shape, generator=generator).to(dtype)

        front = (self.batch_size,) if self.batch_size else ()
        x, plain = normal(*front, self.rows, self.depth), normal(*front, self.outputs, self.depth)
        bias = normal(self.outputs) if self.bias else None
        if self.bad == "x":
            x[1, 3], x[2, self.depth - 1], x[3, 0] = torch.nan, torch.inf, -torch.inf
        if self.bad == "weight":
            plain[3, 2], plain[self.outputs - 1, self.depth - 1] = torch.nan, torch.inf
        call = LinearCall(x, _packed(plain, self.packed) if self.packed else plain, bias)
        return (self._with_function(call, normal),)

    def _with_function(self, call: LinearCall, normal: Any) -> LinearCall:
        dtype = call.x.dtype
        column, full, row = (
            normal(self.outputs),
            normal(self.rows, self.outputs),
            normal(self.rows, 1),
        )
        match self.function:
            case "activation":
                found = record(lambda y: torch.nn.functional.silu(y), dtype, ("y",))
                return replace(call, epilogue=found)
            case "scale":
                found = record(lambda y: torch.relu(y * column), dtype, ("y",))
                return replace(call, epilogue=found)
            case "residual":
                return replace(call, epilogue=record(lambda y: y + full, dtype, ("y",)))
            case "norm":
                return replace(call, prologue=record(lambda x: x * row, dtype, ("x",)))
            case "gated":
                found = record(lambda gate, up: torch.sigmoid(gate) * up, dtype, ("gate", "up"))
                return replace(call, epilogue=found)
        return call

    def request(self, given: Given) -> LinearRequest:
        """Describe the call."""
        call: LinearCall = given[0]
        before, after = call.prologue, call.epilogue
        spec = call.weight.spec if isinstance(call.weight, Packed) else None
        shape = call.x.shape
        return LinearRequest(
            device=call.x.device.type,
            dtype=self.dtype,
            rows=shape[1] if self.batch_size else math.prod(shape[:-1]),
            outputs=self.outputs,
            depth=self.depth,
            batch=shape[0] if self.batch_size else 1,
            weight="" if spec is None else spec.format,
            weight_options=() if spec is None else spec.options,
            bias=self.bias,
            deterministic=torch.are_deterministic_algorithms_enabled(),
            prologue="" if before is None else before.text,
            epilogue="" if after is None else after.text,
            gated=call.gated,
            prologue_captured=() if before is None else before.spreads(shape),
            epilogue_captured=() if after is None else after.spreads(shape),
        )

    def exact(self, given: Given) -> dict[str, Tensor]:
        """Multiply in float64, and round nowhere."""
        call: LinearCall = given[0]
        wide = replace(
            call,
            x=call.x.double(),
            weight=_plain(call).double(),
            bias=None if call.bias is None else call.bias.double(),
        )
        return {"out": implementation(LINEAR, "kernels.reference")(wide)}

    def naive(self, given: Given) -> dict[str, Tensor]:
        """Add products one after the other, in float32 as the contract says; round at each stop."""
        call: LinearCall = given[0]
        x, weight, dtype = call.x, _plain(call), call.x.dtype
        if call.prologue is not None:
            x = call.prologue.apply(x)
        wide = torch.promote_types(dtype, torch.float32)
        out = torch.zeros((*x.shape[:-1], weight.shape[-2]), dtype=wide)
        left, right = x.to(wide)[..., :, None, :], weight.to(wide)[..., None, :, :]
        for at in range(self.depth):
            out = out + left[..., at] * right[..., at]
        out = out.to(dtype)
        if call.bias is not None:
            out = out + call.bias
        if call.epilogue is not None:
            out = call.epilogue.apply(*(out.chunk(2, -1) if call.gated else (out,)))
        return {"out": out}

    def public(self, given: Given) -> Any:
        """Call the op."""
        call: LinearCall = given[0]
        weight, spec = [call.weight], ""
        if isinstance(call.weight, Packed):
            weight, spec = list(call.weight.tensors), str(call.weight.spec)
        ops = torch.ops.torchyard_kernels
        if call.prologue is None and call.epilogue is None:
            return ops.linear(call.x, weight, spec, call.bias)
        words: list[Any] = []
        for function in (call.prologue, call.epilogue):
            captured = [] if function is None else list(function.captured)
            words += ["" if function is None else function.text, captured or None]
        return ops.linear_fused(call.x, weight, spec, call.bias, *words, call.gated)


def _packed(weight: Tensor, packed: str) -> Packed:
    if packed in _PACKED:
        found = torchyard_kernels.quantize(weight, **_PACKED[packed])
    else:
        found = torchyard_kernels.PackedWeight(weight, packed)
    return Packed(WeightSpec.parse(found.spec_text), tuple(found.tensors))


def _plain(call: LinearCall) -> Tensor:
    """Return the weight as numbers, those that a packed one stands for."""
    if isinstance(call.weight, Tensor):
        return call.weight
    spec = call.weight.spec
    unit = torch.eye(spec.columns, dtype=call.x.dtype)
    columns: Tensor = implementation(LINEAR, "kernels.reference")(LinearCall(unit, call.weight))
    return columns.mT


_FLOATS: Final = ("float32", "bfloat16", "float16")
_FUNCTIONS: Final = ("activation", "scale", "residual", "norm", "gated")
_LAYOUTS: Final = ("offset", "strided", "transposed")
_MATCHES: Final = named_cases(
    *(LinearCase(name, dtype=name) for name in _FLOATS),
    LinearCase("float64", dtype="float64"),
    *(LinearCase(f"{name}-one-row", dtype=name, rows=1, bias=False) for name in _FLOATS),
    *(LinearCase(f"{name}-deep", dtype=name, rows=3, depth=530) for name in _FLOATS),
    *(LinearCase(f"{name}-many-rows", dtype=name, rows=37, outputs=70) for name in _FLOATS),
    *(LinearCase(f"{name}-batch", dtype=name, batch_size=3, rows=4) for name in _FLOATS),
    LinearCase("one-of-each", rows=1, outputs=1, depth=1),
    LinearCase("wide", rows=2, outputs=300, depth=33),
    *(
        LinearCase(f"{name}-{dtype}", dtype=dtype, function=name, rows=6, outputs=64)
        for name in _FUNCTIONS
        for dtype in ("float32", "bfloat16")
    ),
)
_WEIGHTS: Final = named_cases(
    *(LinearCase(f"panels-{name}", dtype=name, packed="panels") for name in _FLOATS),
    *(LinearCase(f"panels-{name}-rows", dtype=name, packed="panels", rows=21) for name in _FLOATS),
    *(
        LinearCase(f"{packed}-{name}", dtype=name, packed=packed, depth=128 + 32)
        for packed in _PACKED
        for name in _FLOATS
    ),
    LinearCase("int4-one-row", dtype="bfloat16", packed="int4", rows=1, depth=256, outputs=130),
    LinearCase("int8-many-rows", packed="int8", rows=40, depth=70),
)
_NOT_FINITE: Final = named_cases(
    *(LinearCase(f"x-{name}", dtype=name, bad="x") for name in _FLOATS),
    *(LinearCase(f"weight-{name}", dtype=name, bad="weight") for name in _FLOATS),
    LinearCase("x-packed", dtype="bfloat16", bad="x", packed="panels"),
    LinearCase("x-int8", bad="x", packed="int8", bias=False),
    LinearCase("x-function", bad="x", function="scale"),
)
_ANY_MEMORY: Final = named_cases(
    *(LinearCase(f"{name}-{layout}", layout, name) for name in _FLOATS for layout in _LAYOUTS),
    LinearCase("batch-transposed", "transposed", batch_size=2),
    LinearCase("packed-strided", "strided", packed="panels"),
    LinearCase("int8-strided", "strided", packed="int8", depth=96),
    LinearCase("function-transposed", "transposed", function="residual"),
    LinearCase("no-rows", rows=0),
    LinearCase("no-outputs", outputs=0),
    LinearCase("no-depth", depth=0),
)
_FORMS: Final = named_cases(
    LinearCase("float32"),
    LinearCase("bfloat16-one-row", dtype="bfloat16", rows=1),
    LinearCase("batch", dtype="float16", batch_size=3),
    LinearCase("packed", packed="panels"),
    LinearCase("int8", packed="int8", depth=96),
    LinearCase("gated", function="gated", outputs=64),
    LinearCase("scale", function="scale", dtype="bfloat16"),
)
_BATCHES: Final = named_cases(
    *(LinearCase(name, dtype=name, rows=7, depth=300) for name in _FLOATS),
    LinearCase("packed", packed="panels", rows=19, depth=300),
)
_TANGENTS: Final = named_cases(
    LinearCase("float32"),
    LinearCase("float64", dtype="float64", bias=False),
    LinearCase("float32-batch", batch_size=3, bias=False),
    LinearCase("packed", packed="panels"),
)
GRIDS: Final[Mapping[str, Mapping[str, Mapping[str, Case]]]] = {
    LINEAR: {
        "matches": _MATCHES,
        "weights": _WEIGHTS,
        "not-finite": _NOT_FINITE,
        "any-memory": _ANY_MEMORY,
        "forms": _FORMS,
        "batches": _BATCHES,
        "tangents": _TANGENTS,
    }
}
