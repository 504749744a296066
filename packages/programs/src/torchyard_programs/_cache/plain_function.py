"""Plain functions: those whose names are compared without building a key.

The key of a function takes a microsecond to build, half of the time of a short call. Most functions
name only functions of torch, and tensors and numbers of their closure.
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
    """A function whose program is cached.

    It is found by the address of its code, or its own where it has no code.

    Attributes:
        fixed: the function itself if it is torch's, so that nothing need be compared; else None.
        alone: the program, without captured tensors.
    """

    __slots__ = ("_constants", "_outer", "_owner", "_tensors", "alone", "fixed")

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
        # Kept alive, so that no other code has its address.
        self._owner = _code_of(function)
        self._outer = outer
        # Of the closure, by position: the value; and of each tensor, in the program's order, dtype
        # and device.
        self._constants = constants
        self._tensors = tensors

    @property
    def address(self) -> int:
        """The address by which it is found."""
        return id(self._owner)

    def program(self, function: Any) -> tuple[str, tuple[Tensor, ...]] | None:
        """Return the program and its captured tensors; None where the program may differ.

        Args:
            function: a function of the same address.
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
        except ValueError:  # a name that is not bound yet; the call raises
            return None
        return self.alone[0], found


def plain_function(
    function: Callable[..., Any], text: str, captured: Sequence[Tensor]
) -> PlainFunction | None:
    """Return the plain form of a function; None where it is not plain.

    Args:
        function: a function whose program is cached.
        text: the program.
        captured: its captured tensors, in order.
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
    """Return whether two numbers have the same type and value; never true for zeros."""
    return bool(type(value) is type(held) and type(held) in _NUMBERS and value and value == held)
