"""Programs of functions, kept where a function can be known to do the same again.

Recording takes some microseconds per operation, which is more than two hundred small tensors take.
A function does the same again if its code is the same and everything that the code names is: a
module of torch, a plain number, or a name of Python's own. Any other function is recorded at every
call, and so is one under torch.compile.
"""

from __future__ import annotations

from collections.abc import Callable
from types import CodeType, FunctionType, ModuleType
from typing import Any, Final

import torch
from torch import Tensor

from torchyard_programs import ProgramError, result_count, trace

__all__ = ["recorded"]

_NUMBERS: Final = (bool, int, float)
_MOST: Final = 1024

# A key, whose code object keeps its number, and the text.
_kept: dict[tuple[Any, ...], tuple[CodeType, str]] = {}


def recorded(
    fn: Callable[..., Any], function: str, arguments: int, device: torch.device
) -> tuple[str, list[Tensor]]:
    """Return a function's program and the tensors that it captures.

    Args:
        fn: the function.
        function: who asks, for messages.
        arguments: how many the function takes.
        device: where it is computed.

    Raises:
        ProgramError: it cannot be recorded, or returns nothing.
    """
    key = None if torch.compiler.is_compiling() else _key(fn, arguments, device)
    known = _kept.get(key) if key is not None else None
    if known is not None:
        return known[1], []
    inputs = tuple([(f"x{index}", None) for index in range(arguments)])
    text, captured = trace(fn, function, inputs, device, noun="an element")
    if result_count(text) == 0:
        raise ProgramError(f"{function}: expected a function that returns something, got ()")
    if key is not None and not captured:
        if len(_kept) >= _MOST:
            _kept.clear()
        _kept[key] = (fn.__code__, text)
    return text, captured


def _key(fn: Any, arguments: int, device: torch.device) -> tuple[Any, ...] | None:
    """Return what a function's program depends on; None where that is not known."""
    if type(fn) is not FunctionType or fn.__defaults__ or fn.__kwdefaults__:
        return None
    code = fn.__code__
    closure = fn.__closure__
    try:
        found = [] if closure is None else [cell.cell_contents for cell in closure]
    except ValueError:  # a name that is not bound yet; the call will tell
        return None
    named = fn.__globals__
    for name in code.co_names:
        if name in named:
            value = named[name]
            if type(value) is ModuleType and value.__name__.partition(".")[0] == "torch":
                continue
            found.append(value)
    for value in found:
        if type(value) not in _NUMBERS:
            return None
    for constant in code.co_consts:
        if type(constant) is CodeType:
            return None
    if not found:
        return (id(code), arguments, device)
    # Equal numbers of two types are two programs.
    return (id(code), arguments, device, *[(type(value), repr(value)) for value in found])
