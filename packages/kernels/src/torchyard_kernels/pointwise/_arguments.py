"""What foreach_map was given, as its ops take it.

An op takes tensors, numbers and strings. So the arguments become one list of tensors, one of
numbers, and a form: a letter for each argument. ``T`` is a list of tensors, ``t`` one tensor for
all groups; ``F I B`` are lists of float, int and bool numbers, ``f i b`` one number for all.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Final, NamedTuple

import torch
from torch import Tensor

from torchyard import arguments as checks
from torchyard_kernels.pointwise.contract import Operand
from torchyard_programs import is_readable_on

__all__ = ["Arguments", "device_of", "operand_of", "parse_arguments"]

_LETTERS: Final[dict[type, str]] = {bool: "b", int: "i", float: "f"}
_TYPES: Final[dict[str, type]] = {"b": bool, "i": int, "f": float}
# float64 holds every integer up to here.
_EXACT: Final = 2**53


class Arguments(NamedTuple):
    """The arguments of a call.

    Attributes:
        tensors: of each argument in turn.
        numbers: likewise, as floats.
        form: a letter for each argument.
        groups: the length of the lists.
    """

    tensors: list[Tensor]
    numbers: list[float]
    form: str
    groups: int

    def items(self) -> list[Sequence[Any]]:
        """Return what each argument is in each group."""
        return [
            item if letter.isupper() else [item] * self.groups
            for letter, item in zip(self.form, self.passed(), strict=True)
        ]

    def passed(self) -> tuple[Any, ...]:
        """Return them as foreach_map was given them: lists, and what all groups share."""
        found: list[Any] = []
        for at, kind in _places(self.form, self.groups):
            if kind is None:
                found.append(self.tensors[at])
            elif isinstance(at, slice):
                found.append([kind(value) for value in self.numbers[at]])
            else:
                found.append(kind(self.numbers[at]))
        return tuple(found)


@lru_cache(maxsize=1024)
def _places(form: str, groups: int) -> tuple[tuple[Any, type | None], ...]:
    """Return index or slice of each argument in its list, and the kind of those of numbers."""
    found: list[tuple[Any, type | None]] = []
    tensor = number = 0
    for letter in form:
        count = groups if letter.isupper() else 1
        kind = None if letter in "Tt" else _TYPES[letter.lower()]
        start = tensor if kind is None else number
        found.append((slice(start, start + count) if letter.isupper() else start, kind))
        if kind is None:
            tensor += count
        else:
            number += count
    return tuple(found)


def parse_arguments(function: str, lists: Sequence[Any]) -> Arguments:
    """Check foreach_map's arguments and lay them out.

    Raises:
        TypeError: an argument is neither a tensor nor a number nor a list of one of these.
        ValueError: lists differ in length, or there is none.
    """
    lengths = [len(item) for item in lists if isinstance(item, list | tuple)]
    if not lengths:
        for position, item in enumerate(lists):
            if not isinstance(item, Tensor):
                _letter(function, position, item)
        raise ValueError(
            f"{function}: argument 0: expected at least one list of tensors, got none; call the "
            "function itself"
        )
    groups = lengths[0]
    for position, item in enumerate(lists):
        if isinstance(item, list | tuple) and len(item) != groups:
            raise ValueError(
                f"{function}: argument {position}: expected a list of {groups} as the first list "
                f"is, got {len(item)}"
            )
    tensors: list[Tensor] = []
    numbers: list[float] = []
    form = ""
    for position, item in enumerate(lists):
        name = f"argument {position}"
        if isinstance(item, Tensor):
            tensors.append(checks.tensor(function, name, item))
            form += "t"
        elif not isinstance(item, list | tuple):
            form += _letter(function, position, item)
            numbers.append(float(item))
        elif not groups or isinstance(item[0], Tensor):
            for index, part in enumerate(item):
                if not isinstance(part, Tensor):
                    raise _mixed(function, position, part)
                tensors.append(checks.tensor(function, f"{name}[{index}]", part))
            form += "T"
        else:
            letters = {_letter(function, position, part) for part in item}
            # As torch's promotion: of numbers of several kinds the widest.
            form += next(letter for letter in "fib" if letter in letters).upper()
            numbers.extend([float(part) for part in item])
    if not any(letter in "Tt" for letter in form):
        raise ValueError(
            f"{function}: argument 0: expected at least one tensor, got numbers alone; call the "
            "function itself"
        )
    return Arguments(tensors, numbers, form, groups)


def _letter(function: str, position: int, item: Any) -> str:
    if isinstance(item, Tensor):
        raise _mixed(function, position, item)
    kind = next((kind for kind in (bool, int, float) if isinstance(item, kind)), None)
    if kind is None:
        raise checks.wrong_kind(
            function,
            f"argument {position}",
            "a tensor, a bool, int or float, or a list of these",
            item,
            "let the function capture it",
        )
    if kind is int and abs(item) > _EXACT:
        raise ValueError(
            f"{function}: argument {position}: expected integers of at most 2**53, got {item}; "
            f"pass a tensor"
        )
    return _LETTERS[kind]


def _mixed(function: str, position: int, part: Any) -> TypeError:
    return TypeError(
        f"{function}: argument {position}: expected a list of tensors or one of numbers, got one "
        f"with {'a tensor' if isinstance(part, Tensor) else type(part).__name__} among others"
    )


def operand_of(item: Any) -> Operand:
    """Return what a tensor or a number is to a program."""
    if isinstance(item, Tensor):
        return str(item.dtype)[6:], min(item.dim(), 1)
    return type(item).__name__, -1


def device_of(tensors: Sequence[Tensor]) -> torch.device:
    """Return where a group is computed: where its tensors lie, those of no dimension aside.

    Raises:
        TypeError: they lie on several devices.
    """
    device = next((tensor.device for tensor in tensors if tensor.dim()), tensors[0].device)
    for tensor in tensors:
        if tensor.device != device and not is_readable_on(tensor, device):
            raise TypeError(
                f"foreach_map: expected the tensors of a group on one device, got {device} and "
                f"{tensor.device}; move one"
            )
    return device
