"""The part of CuTe DSL that generated functions use, over torch tensors.

A vector in registers is a tensor of one dimension. It says what the functions' text means, not
what CuTe DSL makes of it: operators and functions here are torch's of the same name.
"""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

__all__ = ["modules", "vector"]


class _Type:
    """A numeric type: casts a number, and names a dtype for ``Vector.to``."""

    def __init__(self, dtype: torch.dtype) -> None:
        self.dtype = dtype

    def __call__(self, value: Any) -> Tensor:
        return torch.as_tensor(value).to(self.dtype)


class _Registers:
    def __init__(self, shape: torch.Size, kind: _Type) -> None:
        self._held = torch.zeros(shape, dtype=kind.dtype)

    def store(self, vector: Tensor) -> None:
        # As a store does, it takes a vector of the same length and type.
        assert vector.shape == self._held.shape
        assert vector.dtype == self._held.dtype
        self._held = vector.clone()

    def load(self) -> Tensor:
        return _vector(self._held.clone())

    def __getitem__(self, place: int) -> Tensor:
        return self._held[place].clone()

    def __setitem__(self, place: int, value: Tensor) -> None:
        assert value.dtype == self._held.dtype
        self._held[place] = value


class Vector(Tensor):
    """A tensor whose ``to`` takes the types here."""

    def to(self, kind: Any, *rest: Any, **keywords: Any) -> Any:
        dtype = kind.dtype if isinstance(kind, _Type) else kind
        return super().to(dtype, *rest, **keywords)


def _vector(tensor: Tensor) -> Vector:
    return tensor.as_subclass(Vector)


def _full(shape: Any, value: Any, kind: _Type) -> Tensor:
    return _vector(torch.full(tuple(shape), value, dtype=kind.dtype))


def _where(condition: Tensor, yes: Tensor, no: Tensor) -> Tensor:
    assert condition.dtype == torch.bool
    assert yes.dtype == no.dtype
    return torch.where(condition, yes, no)


def _function(name: str) -> Callable[..., Tensor]:
    function: Callable[[Tensor], Tensor] = getattr(torch, {"roundeven": "round"}.get(name, name))

    def call(x: Tensor, *, fastmath: bool) -> Tensor:
        assert x.dtype == torch.float32
        assert not fastmath
        return function(x)

    return call


def modules() -> dict[str, ModuleType]:
    """Return modules to be found as ``cutlass`` and ``cutlass.cute``."""
    cutlass, cute, math = (ModuleType(name) for name in ("cutlass", "cutlass.cute", "math"))
    for name in ("float16", "float32", "int8", "int16", "int32", "int64", "uint8"):
        setattr(cutlass, name.capitalize(), _Type(getattr(torch, name)))
    parts: dict[str, Any] = {
        "BFloat16": _Type(torch.bfloat16),
        "Boolean": _Type(torch.bool),
        "Constexpr": object,
        "range_constexpr": range,
        "cute": cute,
    }
    for name, part in parts.items():
        setattr(cutlass, name, part)
    names = "ceil cos erf exp exp2 expm1 floor log log1p log2 roundeven rsqrt sin sqrt tanh"
    for name in names.split():
        setattr(math, name, _function(name))
    parts = {
        "Tensor": Tensor,
        "full": _full,
        "jit": lambda function: function,
        "make_rmem_tensor": _Registers,
        "math": math,
        "size": lambda shape: torch.Size(shape).numel(),
        "where": _where,
    }
    for name, part in parts.items():
        setattr(cute, name, part)
    return {"cutlass": cutlass, "cutlass.cute": cute}


def vector(values: Any, dtype: torch.dtype) -> Tensor:
    """Return a vector in registers."""
    return _vector(torch.as_tensor(values, dtype=dtype))
