"""Recordings: programs of functions, cached where a function is known to do the same again.

Recording takes longer than a short call's arithmetic. A function does the same again if its code is
repeatable and its names have the same values: plain numbers, torch's dtypes and functions, other
such functions, tuples of such. Tensors may differ in each call; only their dtype is compared, and
their shape if the code reads it. A second recording with tensors without values shows that values
of tensors have no influence and that none is written to. Any other function is recorded in every
call.
"""

from __future__ import annotations

from collections.abc import Callable, Sized
from operator import attrgetter
from types import CellType, CodeType, FunctionType
from typing import Any, Final, NamedTuple

import torch
from torch import Tensor

from torchyard import arguments, uncompiled
from torchyard.dispatch import no_active_modes
from torchyard_programs._cache.plain_function import PlainFunction, plain_function
from torchyard_programs._cache.repeatable import ATTRIBUTES, FIXED, is_fixed, repeatable
from torchyard_programs._captured import lies_on

__all__ = ["Recordings"]

_NUMBERS: Final = (bool, int, float)
_TENSORS: Final = (Tensor, torch.nn.Parameter)
_MOST: Final = 1024
_DEEPEST: Final = 4
_META: Final = torch.device("meta")

# Facts of a value or a function, as bits: unknown, so that it may change; the same in each call;
# the shape of a tensor may be read.
_UNKNOWN: Final = 0
_SAME: Final = 1
_SIZED: Final = 2


class _Code:
    """Facts of a function's code; represents the code in keys, by identity.

    Attributes:
        code: kept alive, so that no other code has its address.
        outer: names that it reads from globals and builtins.
        known: the bits.
        asking: as of :class:`Repeatable`.
    """

    __slots__ = ("asking", "code", "known", "outer")

    def __init__(self, code: CodeType) -> None:
        found = repeatable(code)
        self.code = code
        self.outer = () if found is None else found.outer
        self.asking = found is None or found.asking
        self.known = _UNKNOWN if found is None else _SAME | _SIZED if found.sized else _SAME


_codes: dict[int, _Code] = {}
# Whether mypy knows the attribute depends on its cache.
_builtins_of: Final = attrgetter("__builtins__")


class _Recording(NamedTuple):
    """A program, and the positions of its captured tensors among those that its function names.

    Attributes:
        text: the program; the same object for the same text.
        order: the position of each captured tensor.
    """

    text: str
    order: tuple[int, ...]


class Recordings:
    """A cache of recordings of functions for one purpose.

    Args:
        record: called with a function, a device and the context of a call; returns the program's
            text and the captured tensors, as :func:`trace` does. Its result depends on nothing
            else, and its text not on the device.
    """

    def __init__(self, record: Callable[..., tuple[str, list[Tensor]]]) -> None:
        arguments.function("Recordings", "record", record)
        self._record = record
        self._known: dict[tuple[Any, ...], _Recording] = {}
        # By context, then by the address of the function's code.
        self._plain: dict[tuple[Any, ...], dict[int, PlainFunction]] = {}
        # Hashes of keys with numbers or sizes that occurred once. A key that differs in each call
        # is not worth caching.
        self._occurred: set[int] = set()
        self._texts: dict[str, str] = {}

    def cached_recording(
        self, function: Callable[..., Any], *context: Any
    ) -> tuple[str, tuple[Tensor, ...]] | None:
        """Return the cached recording of a function that does the same; None where there is none.

        The caller makes sure that nothing is being compiled. Objects other than functions have no
        recording; :meth:`recorded` refuses them.

        Args:
            function: the function.
            context: everything else that the program depends on, hashable.
        """
        known = self._plain.get(context)
        if known is not None:
            code = function.__code__ if type(function) is FunctionType else function
            plain = known.get(id(code))
            if plain is not None:
                if plain.fixed is function:
                    return plain.alone
                program = plain.program(function)
                if program is not None:
                    return program
        tensors: list[Tensor] = []
        key = _key(function, context, tensors)
        if key is None:
            return None
        found = self._known.get(key)
        if found is None:
            return None
        text, order = found
        return text, tuple([tensors[position] for position in order]) if order else ()

    # Dynamo would compile the parts of a recording that is made outside of a graph.
    @uncompiled("it is used outside of graphs")
    def recorded(
        self, function: Callable[..., Any], device: torch.device, *context: Any
    ) -> tuple[str, list[Tensor]]:
        """Record a function, or return the cached recording of one that does the same.

        The caller makes sure that nothing is being compiled.

        Args:
            function: the function.
            device: the device of the computation.
            context: everything else that the program depends on, hashable.

        Raises:
            ProgramError: it does something that cannot be recorded.
        """
        if type(device) is not torch.device:
            device = arguments.device("Recordings.recorded", "device", device)
        tensors: list[Tensor] = []
        key = _key(function, context, tensors)
        if key is None:
            return self._record(function, device, *context)
        found = self._known.get(key)
        if found is not None:
            text, order = found
            captured = [tensors[position] for position in order] if order else []
            if all(lies_on(tensor, device) for tensor in captured):
                return text, captured
        text, captured = self._record(function, device, *context)
        # Otherwise a mode or a transform may have replaced a tensor's attributes.
        if not no_active_modes():
            return text, captured
        if _varies(key) and hash(key) not in self._occurred:
            if len(self._occurred) >= _MOST:
                self._occurred.clear()
            self._occurred.add(hash(key))
            return text, captured
        places = self._order(function, context, text, captured, tensors)
        if places is not None:
            text = self._keep(key, text, places)
            self._keep_plain(function, context, text, captured)
        return text, captured

    def is_interned(self, text: str) -> bool:
        """Return whether a text is the interned object: see :meth:`interned`."""
        if type(text) is not str or not text:
            arguments.text("Recordings.is_interned", "text", text)
        return self._texts.get(text) is text

    def interned(self, text: str) -> str:
        """Return the one object for all equal texts, whether or not a recording has it.

        Texts of cached recordings are such objects. So a text from a graph or a file is compared by
        identity, as the text of a function's recording is.
        """
        if type(text) is not str or not text:
            arguments.text("Recordings.interned", "text", text)
        found = self._texts.get(text)
        if found is None:
            self._make_room(self._texts)
            found = self._texts.setdefault(text, text)
        return found

    def _keep(self, key: tuple[Any, ...], text: str, order: tuple[int, ...]) -> str:
        self._make_room(self._known)
        text = self._texts.setdefault(text, text)
        self._known[key] = _Recording(text, order)
        return text

    def _keep_plain(
        self, function: Callable[..., Any], context: tuple[Any, ...], text: str, captured: Any
    ) -> None:
        plain = plain_function(function, text, captured)
        if plain is not None:
            self._plain.setdefault(context, {}).setdefault(plain.address, plain)

    def _make_room(self, table: Sized) -> None:
        if len(table) >= _MOST:
            self._known.clear()
            self._plain.clear()
            self._texts.clear()

    def _order(
        self,
        function: Callable[..., Any],
        context: tuple[Any, ...],
        text: str,
        captured: list[Tensor],
        tensors: list[Tensor],
    ) -> tuple[int, ...] | None:
        """Return where captured tensors are among the named ones; None where one is another, where
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
            again, found = self._record(_renamed(function, of), _META, *context)
        except Exception:  # any that reading a value raises, in code that is not ours
            return None
        same = [id(tensor) for tensor in found] == [id(empty[position]) for position in order]
        return order if again == text and same else None


def _key(function: Any, context: tuple[Any, ...], tensors: list[Tensor]) -> tuple[Any, ...] | None:
    """Return what is equal for functions that do the same, and add the tensors that the function
    names, each once; None where it may not do the same again."""
    kind = type(function)
    fixed = FIXED.get(kind)
    if fixed is not None and function in fixed:
        return (*context, function)
    if kind is not FunctionType:
        return None
    key = [*context]
    known = _take(function, key, tensors, 0)
    if not known:
        return None
    if known & _SIZED:
        key += [tensor.shape for tensor in tensors]
    return tuple(key)


def _varies(key: tuple[Any, ...]) -> bool:
    """Return whether a key has numbers or sizes, which may be others in every call."""
    return any(part in _NUMBERS or type(part) is torch.Size for part in key)


def _take(function: FunctionType, key: list[Any], tensors: list[Tensor], depth: int) -> int:
    """Add a function to a key, and return the bits."""
    code = function.__code__
    found = _codes.get(id(code)) or _look_at(code)
    known = found.known
    if not known or function.__kwdefaults__ or depth > _DEEPEST:
        return _UNKNOWN
    # Nothing names the outermost one, or it would be one of its own helpers.
    if depth and not ATTRIBUTES.isdisjoint(function.__dict__):
        return _UNKNOWN
    key.append(found)
    closure = function.__closure__
    if closure is not None:
        for cell in closure:
            try:
                value = cell.cell_contents
            except ValueError:  # a name that is not bound yet; the call raises
                return _UNKNOWN
            bits = _take_value(value, key, tensors, depth)
            if not bits:
                return _UNKNOWN
            known |= bits
    if found.outer:
        outer = function.__globals__
        for name in found.outer:
            try:
                value = outer[name]
            except KeyError:
                value = _builtins_of(function).get(name)
            # As for any value, but most are modules, and most calls are short.
            fixed = FIXED.get(type(value))
            if fixed is not None and value in fixed:
                key.append(value)
                continue
            bits = _take_value(value, key, tensors, depth)
            if not bits:
                return _UNKNOWN
            known |= bits
    defaults = function.__defaults__
    if defaults is None:
        key.append(None)
        return known
    bits = _take_value(defaults, key, tensors, depth)
    return known | bits if bits else _UNKNOWN


def _take_value(value: Any, key: list[Any], tensors: list[Tensor], depth: int) -> int:
    """Add what a name holds to a key, and return the bits."""
    kind = type(value)
    if kind in _TENSORS:
        for position, other in enumerate(tensors):
            if other is value:
                key.append(position)
                return _SAME
        # Attributes that a tensor was given may be read, and hide its own.
        if not ATTRIBUTES.isdisjoint(value.__dict__):
            return _UNKNOWN
        tensors.append(value)
        key += (value.dtype, value.device)
        return _SAME
    fixed = FIXED.get(kind)
    if fixed is not None and value in fixed:
        key.append(value)
        return _SAME
    if kind in _NUMBERS:
        # Equal numbers of two types are two programs, and so are the two zeros.
        key += (kind, value if value else repr(value))
        return _SAME
    if kind is FunctionType:
        return _take(value, key, tensors, depth + 1)
    if kind is tuple:
        key += (kind, len(value))
        known = _SAME
        for item in value:
            bits = _take_value(item, key, tensors, depth + 1)
            if not bits:
                return _UNKNOWN
            known |= bits
        return known
    if value is None or kind is torch.dtype:
        key.append(value)
        return _SAME
    return _UNKNOWN


def _look_at(code: CodeType) -> _Code:
    if len(_codes) >= _MOST:
        _codes.clear()
    found = _codes[id(code)] = _Code(code)
    return found


def _renamed(value: Any, tensors: dict[int, Tensor]) -> Any:
    """Return what a name holds, with other tensors in place of some."""
    if type(value) is tuple:
        return tuple([_renamed(item, tensors) for item in value])
    if type(value) is not FunctionType or is_fixed(value):
        return tensors.get(id(value), value)
    outer = value.__globals__
    found = repeatable(value.__code__)
    names = () if found is None else found.outer
    named = {name: _renamed(outer[name], tensors) for name in names if name in outer}
    cells = tuple([CellType(_renamed(c.cell_contents, tensors)) for c in value.__closure__ or ()])
    defaults = _renamed(value.__defaults__, tensors)
    return FunctionType(value.__code__, {**outer, **named}, value.__name__, defaults, cells)
