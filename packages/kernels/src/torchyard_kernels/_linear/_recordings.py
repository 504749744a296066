"""Programs of a layer's functions, kept where a function can be known to do the same again.

Recording costs more than a short product does. A function does the same again if its code is the
same and all that the code names: modules and functions of torch, plain numbers, and tensors of the
same dtype and shape, which may be others each time. That the values of tensors decide nothing is
seen by recording once more with tensors that have none. Any other function is recorded at every
call, and so is one under torch.compile.
"""

from __future__ import annotations

from collections.abc import Callable
from types import BuiltinFunctionType, CellType, CodeType, FunctionType, ModuleType
from typing import Any, Final, NamedTuple

import torch
from torch import Tensor

from torchyard_kernels._linear._function import Recorded, names_of, record, recording_of

__all__ = ["kept", "recorded"]

_NUMBERS: Final = (bool, int, float)
_TENSORS: Final = (Tensor, torch.nn.Parameter)
_MOST: Final = 1024
_META: Final = torch.device("meta")


class _Kept(NamedTuple):
    """A program and where the tensors that it captures are among those that its function names.

    Attributes:
        text: the program.
        order: of each captured tensor the position.
        held: what the key has the addresses of.
    """

    text: str
    order: tuple[int, ...]
    held: tuple[Any, ...]


_known: dict[tuple[Any, ...], _Kept] = {}


def recorded(function: Callable[..., Tensor], role: str, gated: bool, x: Tensor) -> Recorded:
    """Record a function, or take what was kept of one that does the same; arguments as `record`."""
    if torch.compiler.is_compiling():
        return record(function, role, gated, x)
    named = _named(function)
    if named is None:
        return record(function, role, gated, x)
    key, tensors, held = named
    key = (key, role, gated, x.dtype, x.device)
    found = _known.get(key)
    if found is not None:
        return _recorded(found, tensors, role, gated)
    result = record(function, role, gated, x)
    order = _order(function, result, tensors, role, gated, x.dtype)
    if order is not None:
        if len(_known) >= _MOST:
            _known.clear()
        _known[key] = _Kept(result.text, order, held)
    return result


def kept(function: Callable[..., Tensor], role: str, gated: bool, x: Tensor) -> Recorded | None:
    """Return what was kept of a function that does the same; None where nothing was."""
    named = _named(function)
    if named is None:
        return None
    key, tensors, _ = named
    found = _known.get((key, role, gated, x.dtype, x.device))
    return None if found is None else _recorded(found, tensors, role, gated)


def _recorded(found: _Kept, tensors: list[Tensor], role: str, gated: bool) -> Recorded:
    captured = tuple([tensors[position] for position in found.order])
    return Recorded(found.text, captured, names_of(role, gated))


def _named(function: Any) -> tuple[tuple[Any, ...], list[Tensor], tuple[Any, ...]] | None:
    """Return what a program depends on beside its input, the tensors that its function names, and
    what the key has addresses of; None where that is not known."""
    if _is_torchs(function):
        return (id(function),), [], (function,)
    if type(function) is not FunctionType or function.__kwdefaults__:
        return None
    code = function.__code__
    try:
        values = [cell.cell_contents for cell in function.__closure__ or ()]
    except ValueError:  # a name that is not bound yet; the call will tell
        return None
    named = function.__globals__
    values += [named[name] for name in code.co_names if name in named]
    values += function.__defaults__ or ()
    key: list[Any] = [id(code)]
    tensors: list[Tensor] = []
    held: list[Any] = [code]
    for value in values:
        kind = type(value)
        if kind in _TENSORS:
            tensors.append(value)
            key.append((value.dtype, value.shape))
        elif kind in _NUMBERS:
            # Equal numbers of two types are two programs.
            key.append((kind, repr(value)))
        elif _is_torchs(value):
            key.append(id(value))
            held.append(value)
        else:
            return None
    if any(type(constant) is CodeType for constant in code.co_consts):
        return None
    return tuple(key), tensors, tuple(held)


def _is_torchs(value: Any) -> bool:
    if type(value) is ModuleType:
        name = value.__name__
    elif type(value) is FunctionType or type(value) is BuiltinFunctionType:
        if getattr(value, "__self__", None) is torch._C._VariableFunctions:
            return True
        name = value.__module__ or ""
    else:
        return False
    return name == "torch" or name.startswith("torch.")


def _order(
    function: Any, result: Recorded, tensors: list[Tensor], role: str, gated: bool, dtype: Any
) -> tuple[int, ...] | None:
    """Return where captured tensors are among the named ones; None where values may have decided.

    A tensor that is named and not captured may have.
    """
    positions = {id(tensor): position for position, tensor in enumerate(tensors)}
    found = tuple([positions.get(id(tensor), -1) for tensor in result.captured])
    if sorted(found) != list(range(len(tensors))) or len(positions) != len(tensors):
        return None
    if not tensors:
        return ()
    empty = {id(tensor): torch.empty_like(tensor, device=_META) for tensor in tensors}
    try:
        text, captured = recording_of(
            _renamed(function, empty), role, names_of(role, gated), dtype, _META
        )
    except Exception:  # any that reading a value raises, in code that is not ours
        return None
    same = [id(tensor) for tensor in captured] == [id(empty[id(t)]) for t in result.captured]
    return found if text == result.text and same else None


def _renamed(function: FunctionType, tensors: dict[int, Tensor]) -> FunctionType:
    """Return the function with other tensors where it names some."""

    def instead(value: Any) -> Any:
        return tensors.get(id(value), value)

    cells = tuple([CellType(instead(cell.cell_contents)) for cell in function.__closure__ or ()])
    names = {name: instead(value) for name, value in function.__globals__.items()}
    defaults = tuple([instead(value) for value in function.__defaults__ or ()])
    return FunctionType(function.__code__, names, function.__name__, defaults, cells)
