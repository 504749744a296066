"""kernels.compiled: a whole call by torch.compile with its autotuning."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from types import FunctionType
from typing import Any, Final

import torch
from torch import Tensor

from torchyard_kernels.linear.contract import Function, LinearCall, LinearRequest
from torchyard_programs import build, parse

__all__ = ["compute"]

_MODE: Final = "max-autotune-no-cudagraphs"
# Calls of fewer multiplications take as long as the overhead of a compiled call: not compiled.
_LEAST_WORK: Final = 1 << 22


def compute(call: LinearCall) -> Tensor:
    """Compute a call with a plain weight; the first call of a request takes seconds.

    Small products run without the compiler.
    """
    before, after = call.prologue, call.epilogue
    tensors = [
        *([] if before is None else before.captured),
        *([] if after is None else after.captured),
    ]
    run = _compiled(call.request(), _Applied(before), _Applied(after))
    out: Tensor = run(call.x, call.weight, call.bias, tensors)
    return out.contiguous()


class _Applied:
    """A function without its tensors, equal to any other of the same program."""

    def __init__(self, function: Function | None) -> None:
        self.present = function is not None
        self.count = 0 if function is None else len(function.captured)
        self._key = None if function is None else (function.text, function.inputs)
        self._function = function

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Applied) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)

    def built(self) -> Callable[..., Tensor]:
        """Return the function of inputs and captured tensors, for a compiler to read."""
        return build(parse(self._key[0]), self._key[1]) if self._key else _identity

    def dtype(self, given: torch.dtype) -> torch.dtype:
        """Return the result's dtype."""
        return given if self._function is None else self._function.dtype(given)


def _identity(value: Tensor) -> Tensor:
    return value


@lru_cache(maxsize=256)
def _compiled(request: LinearRequest, before: _Applied, after: _Applied) -> Callable[..., Any]:
    dtype = after.dtype(getattr(torch, request.dtype))
    halves, prepare, finish = request.gated, before.built(), after.built()
    prepares, finishes, first = before.present, after.present, before.count

    def whole(x: Tensor, weight: Tensor, bias: Tensor | None, captured: list[Tensor]) -> Tensor:
        if prepares:
            x = prepare(x, *captured[:first]).expand(x.shape).to(x.dtype)
        if weight.ndim == 3:
            y = torch.bmm(x, weight.mT)
            y = y if bias is None else y + bias
        else:
            y = torch.nn.functional.linear(x, weight, bias)
        if not finishes:
            return y
        parts = y.chunk(2, -1) if halves else (y,)
        return finish(*parts, *captured[first:]).expand(parts[0].shape).to(dtype)

    if request.batch * request.rows * request.outputs * request.depth < _LEAST_WORK:
        return whole
    # A code object of its own: the compiler counts recompilations by it, and after some falls back
    # to eager without an error.
    own = FunctionType(whole.__code__.replace(), globals(), whole.__name__, None, whole.__closure__)
    compiled: Callable[..., Any] = torch.compile(own, mode=_MODE)
    return compiled
