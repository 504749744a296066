"""Functions that are plain: what they name can be compared at one look.

The key of any function takes a microsecond to make, which is half of what a short call costs. Most
functions name torch's own functions, and tensors and numbers of their closure, and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import FunctionType
from typing import Any, Final

import torch
from torch import Tensor

from torchyard_programs._cache.repeatable import is_fixed, repeatable

__all__ = ["PlainFunction", "plain_function"]

_TENSORS: Final = (Tensor, torch.nn.Parameter)
_NUMBERS: Final = (bool, int, float)


class PlainFunction:
    """A function whose program was kept.

    It is looked for by the address of its code; of a function without one, by its own.

    Attributes:
        fixed: one of torch's own, of which nothing need be looked at; else None.
        alone: the program, and that nothing is captured.
    """

    __slots__ = ("_constants", "_held", "_outer", "_tensors", "alone", "fixed")

    def __init__(
        self,
        function: Callable[..., Any],
        text: str,
        outer: tuple[tuple[str, Any], ...],
        constants: tuple[tuple[int, Any], ...],
        tensors: tuple[tuple[int, torch.dtype, torch.device], ...],
    ) -> None:
        self.alone: tuple[str, tuple[Tensor, ...]] = (text, ())
        self.fixed = function if is_fixed(function) else None
        # So that no other has its address.
        self._held = _code_of(function)
        self._outer = outer
        # Of the closure, by position: the value; and of each tensor, in the program's order, dtype
        # and device.
        self._constants = constants
        self._tensors = tensors

    @property
    def address(self) -> int:
        """What it is looked for by."""
        return id(self._held)

    def program(self, function: Any) -> tuple[str, tuple[Tensor, ...]] | None:
        """Return a program and the tensors that it captures; None where it may be another one.

        Args:
            function: one of the same address.
        """
        if self.fixed is not None:
            return self.alone if function is self.fixed else None
        if function.__defaults__ is not None or function.__kwdefaults__:
            return None
        if self._outer:
            names = function.__globals__
            for name, value in self._outer:
                if names.get(name) is not value:
                    return None
        closure = function.__closure__
        if closure is None:
            return self.alone
        found: tuple[Tensor, ...] = ()
        try:
            for position, held in self._constants:
                value = closure[position].cell_contents
                if value is not held and not _is_same_number(value, held):
                    return None
            for position, dtype, device in self._tensors:
                value = closure[position].cell_contents
                if type(value) not in _TENSORS or value.dtype is not dtype:
                    return None
                if value.device != device:
                    return None
                for other in found:
                    if other is value:
                        return None
                found += (value,)
        except ValueError:  # a name that is not bound yet; the call will tell
            return None
        return self.alone[0], found


def plain_function(
    function: Callable[..., Any], text: str, captured: Sequence[Tensor]
) -> PlainFunction | None:
    """Return what tells a function at one look; None where that takes more.

    Args:
        function: whose program was kept.
        text: the program.
        captured: in its order.
    """
    if is_fixed(function):
        return PlainFunction(function, text, (), (), ())
    if type(function) is not FunctionType or function.__defaults__ or function.__kwdefaults__:
        return None
    code = repeatable(function.__code__)
    # Whether a tensor was given attributes of its own is not looked at, nor its shape.
    if code is None or code.asking or code.sized:
        return None
    names = function.__globals__
    if not all(is_fixed(names.get(name)) for name in code.outer):
        return None
    values = [cell.cell_contents for cell in function.__closure__ or ()]
    constants = [(at, value) for at, value in enumerate(values) if type(value) not in _TENSORS]
    if not all(_is_constant(value) for _, value in constants):
        return None
    places = {id(value): at for at, value in enumerate(values) if type(value) in _TENSORS}
    # Each is captured, and by one name.
    if len(places) != len(captured) or len(places) + len(constants) != len(values):
        return None
    if not all(id(tensor) in places for tensor in captured):
        return None
    return PlainFunction(
        function,
        text,
        tuple([(name, names[name]) for name in code.outer]),
        tuple(constants),
        tuple([(places[id(tensor)], tensor.dtype, tensor.device) for tensor in captured]),
    )


def _code_of(function: Callable[..., Any]) -> object:
    return function.__code__ if type(function) is FunctionType else function


def _is_constant(value: Any) -> bool:
    return value is None or type(value) in (*_NUMBERS, torch.dtype) or is_fixed(value)


def _is_same_number(value: Any, held: Any) -> bool:
    """Return whether a number is the same, also in its type; of the two zeros none is."""
    return bool(type(value) is type(held) and type(held) in _NUMBERS and value and value == held)
