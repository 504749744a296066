"""Programs of score_mods, kept where a function can be known to do the same again.

Recording takes longer than a short call's attention. A function does the same again if its code is
repeatable and all that the code names is the same: plain numbers, torch's dtypes and functions,
other such functions, tuples of such, and tensors of the same dtype, and shape if that is asked for,
which may be others each time. That the values of tensors decide nothing is seen by recording once
more with tensors that have none. Any other function is recorded at every call.
"""

from __future__ import annotations

from collections.abc import Callable
from types import CellType, CodeType, FunctionType
from typing import Any, Final, NamedTuple, TypeAlias

import torch
from torch import Tensor

from torchyard_attention._direct import is_undisturbed
from torchyard_attention._trace import SCORE_INPUTS, trace
from torchyard_programs import Repeatable, is_fixed, repeatable

__all__ = ["Recording", "is_kept", "kept", "recorded"]

# A program and the tensors that it captures, in its order.
Recording: TypeAlias = tuple[str, tuple[Tensor, ...]]

_ROLE: Final = "score_mod"
_NUMBERS: Final = (bool, int, float)
_TENSORS: Final = (Tensor, torch.nn.Parameter)
_MOST: Final = 1024
_DEEPEST: Final = 4
_META: Final = torch.device("meta")


class _Kept(NamedTuple):
    """A program and where the tensors that it captures are among those that its function names.

    Attributes:
        text: the program; the same object for the same text.
        order: of each captured tensor the position.
        held: what the key has the addresses of.
    """

    text: str
    order: tuple[int, ...]
    held: tuple[Any, ...]


_names: dict[int, tuple[CodeType, Repeatable | None]] = {}
_known: dict[tuple[Any, ...], _Kept] = {}
# Keys that were met once: a function that names another number each time is not worth keeping.
_met: set[int] = set()
_texts: dict[str, str] = {}


class _Named:
    """What a recording depends on beside its inputs.

    Attributes:
        key: equal for functions that do the same.
        tensors: those that the function names, each once.
        held: what the key has the addresses of.
        sized: whether a function may ask for the shape of a tensor.
    """

    __slots__ = ("held", "key", "sized", "tensors")

    def __init__(self) -> None:
        self.key: list[Any] = []
        self.tensors: list[Tensor] = []
        self.held: list[Any] = []
        self.sized = False

    def take(self, function: FunctionType, depth: int = 0) -> bool:
        """Add a function; return False where it may not do the same again."""
        code = function.__code__
        known = _names.get(id(code))
        if known is None:
            known = _looked_at(code)
        found = known[1]
        # Attributes that a function or a tensor was given may be read under any name.
        if found is None or function.__kwdefaults__ or function.__dict__ or depth > _DEEPEST:
            return False
        key = self.key
        key.append(id(code))
        self.held.append(code)
        closure = function.__closure__
        if closure is not None:
            for cell in closure:
                try:
                    value = cell.cell_contents
                except ValueError:  # a name that is not bound yet; the call will tell
                    return False
                if not self.take_value(value, depth):
                    return False
        self.sized = self.sized or found.sized
        if found.outer:
            outer = function.__globals__
            hidden = function.__builtins__  # type: ignore[attr-defined]
            for name in found.outer:
                value = outer[name] if name in outer else hidden.get(name)
                if not self.take_value(value, depth):
                    return False
        defaults = function.__defaults__
        return defaults is None or self.take_value(defaults, depth)

    def take_value(self, value: Any, depth: int) -> bool:
        """Add what a name holds; return False where it may be another thing next time."""
        kind = type(value)
        if kind in _TENSORS:
            for position, known in enumerate(self.tensors):
                if known is value:
                    self.key.append(position)
                    return True
            if value.__dict__:
                return False
            self.tensors.append(value)
            self.key += (value.dtype, value.device)
        elif kind in _NUMBERS:
            # Equal numbers of two types are two programs, and so are the two zeros.
            self.key += (kind, value if value else repr(value))
        elif kind is tuple:
            self.key += (kind, len(value))
            for item in value:
                if not self.take_value(item, depth + 1):
                    return False
        elif value is None or kind is torch.dtype:
            self.key.append(value)
        elif is_fixed(value):
            self.key.append(id(value))
            self.held.append(value)
        else:
            return kind is FunctionType and self.take(value, depth + 1)
        return True


def recorded(
    function: Callable[..., Any], dtype: torch.dtype, device: torch.device
) -> tuple[str, list[Tensor]]:
    """Record a score_mod, or take what was kept of one that does the same.

    Args:
        function: the score_mod.
        dtype: the scores'.
        device: the query's.
    """
    named = None
    if dtype is torch.float32 and not torch.compiler.is_compiling() and is_undisturbed():
        named = _named(function)
    if named is None:
        return trace(function, _ROLE, SCORE_INPUTS, dtype, device)
    key = tuple(named.key)
    found = _known.get(key)
    if found is not None:
        return found.text, [named.tensors[position] for position in found.order]
    text, captured = trace(function, _ROLE, SCORE_INPUTS, dtype, device)
    if hash(key) not in _met:
        if len(_met) >= _MOST:
            _met.clear()
        _met.add(hash(key))
        return text, captured
    order = _order(function, text, captured, named.tensors)
    if order is not None:
        text = _keep(key, text, order, tuple(named.held))
    return text, captured


def kept(function: Callable[..., Any]) -> Recording | None:
    """Return what was kept of a score_mod that does the same; None where nothing was.

    For float32 scores. That nothing is being compiled is for the caller to know.
    """
    named = _named(function)
    if named is None:
        return None
    found = _known.get(tuple(named.key))
    if found is None:
        return None
    tensors = named.tensors
    return found.text, tuple([tensors[position] for position in found.order])


def is_kept(text: str) -> bool:
    """Return whether the object is the text of a recording that was kept."""
    return _texts.get(text) is text


def _named(function: Any) -> _Named | None:
    if type(function) is not FunctionType:
        return None
    named = _Named()
    if not named.take(function):
        return None
    if named.sized:
        named.key += [tensor.shape for tensor in named.tensors]
    return named


def _looked_at(code: CodeType) -> tuple[CodeType, Repeatable | None]:
    if len(_names) >= _MOST:
        _names.clear()
    # With the code, so that its address is no other's.
    found = _names[id(code)] = (code, repeatable(code))
    return found


def _keep(key: tuple[Any, ...], text: str, order: tuple[int, ...], held: tuple[Any, ...]) -> str:
    if len(_known) >= _MOST:
        _known.clear()
        _texts.clear()
    text = _texts.setdefault(text, text)
    _known[key] = _Kept(text, order, held)
    return text


def _order(
    function: Callable[..., Any], text: str, captured: list[Tensor], tensors: list[Tensor]
) -> tuple[int, ...] | None:
    """Return where captured tensors are among the named ones; None where one is another, or where
    values may have decided."""
    positions = {id(tensor): position for position, tensor in enumerate(tensors)}
    order = tuple([positions.get(id(tensor), -1) for tensor in captured])
    if -1 in order:
        return None
    if not tensors:
        return order
    empty = [torch.empty_like(tensor, device=_META) for tensor in tensors]
    of = {id(tensor): other for tensor, other in zip(tensors, empty, strict=True)}
    try:
        again, found = trace(_renamed(function, of), _ROLE, SCORE_INPUTS, torch.float32, _META)
    except Exception:  # any that reading a value raises, in code that is not ours
        return None
    same = [id(tensor) for tensor in found] == [id(empty[position]) for position in order]
    return order if again == text and same else None


def _renamed(value: Any, tensors: dict[int, Tensor]) -> Any:
    """Return what a name holds, with other tensors in place of some."""
    if type(value) is tuple:
        return tuple([_renamed(item, tensors) for item in value])
    if type(value) is not FunctionType or is_fixed(value):
        return tensors.get(id(value), value)
    outer = value.__globals__
    named = {name: _renamed(outer[name], tensors) for name in _names_in(value) if name in outer}
    cells = tuple([CellType(_renamed(c.cell_contents, tensors)) for c in value.__closure__ or ()])
    defaults = _renamed(value.__defaults__, tensors)
    return FunctionType(value.__code__, {**outer, **named}, value.__name__, defaults, cells)


def _names_in(function: FunctionType) -> tuple[str, ...]:
    found = repeatable(function.__code__)
    return () if found is None else found.outer
