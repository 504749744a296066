"""Calls of foreach_map: the program, and the arguments as the ops take them.

An op takes tensors, numbers and strings. So the arguments become one list of tensors, one of
numbers, and a form: a letter for each argument. ``T`` is a list of tensors, ``t`` one tensor for
all groups; ``F I B`` are lists of float, int and bool numbers, ``f i b`` one number for all.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, NamedTuple

import torch
from torch import Tensor

from torchyard_kernels.pointwise.contract import Operand
from torchyard_programs import is_readable_on

__all__ = ["Arguments", "MapCall", "device_of", "operand_of"]

_TYPES: Final[dict[str, type]] = {"b": bool, "i": int, "f": float}


class Arguments(NamedTuple):
    """The lists of a call.

    Attributes:
        tensors: the tensors of each argument in turn.
        numbers: the numbers of each argument in turn, as floats.
        form: a letter for each argument.
        groups: the length of the lists.
    """

    tensors: list[Tensor]
    numbers: list[float]
    form: str
    groups: int

    def items(self) -> list[Sequence[Any]]:
        """Return of each argument its value in each group."""
        return [
            item if letter.isupper() else [item] * self.groups
            for letter, item in zip(self.form, self.passed(), strict=True)
        ]

    def passed(self) -> tuple[Any, ...]:
        """Return the arguments as foreach_map got them: lists, and values that groups share."""
        found: list[Any] = []
        for at, kind in _places(self.form, self.groups):
            if kind is None:
                found.append(self.tensors[at])
            elif isinstance(at, slice):
                found.append([kind(value) for value in self.numbers[at]])
            else:
                found.append(kind(self.numbers[at]))
        return tuple(found)


@dataclass(frozen=True, slots=True, eq=False)
class MapCall:
    """A call of foreach_map, or of foreach_map_.

    Groups whose operands differ in kind become several calls of ``pointwise/1``.

    Attributes:
        arguments: the lists.
        text: the program.
        captured: the program's captured tensors.
        out: of each result the tensors to write to, one per group; empty: results are new.
        implementation: the implementation that is demanded; empty: none.
    """

    arguments: Arguments
    text: str
    captured: tuple[Tensor, ...]
    out: tuple[Sequence[Tensor], ...] = ()
    implementation: str = ""

    @property
    def tensors(self) -> list[Tensor]:
        """Every tensor of the call."""
        written = [tensor for result in self.out for tensor in result]
        return [*self.arguments.tensors, *self.captured, *written]


@lru_cache(maxsize=1024)
def _places(form: str, groups: int) -> tuple[tuple[Any, type | None], ...]:
    """Return of each argument its index or slice in its list, and the type of its numbers."""
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


def operand_of(item: Any) -> Operand:
    """Return the type of a tensor or a number as an operand of a program."""
    if isinstance(item, Tensor):
        return str(item.dtype)[6:], min(item.dim(), 1)
    return type(item).__name__, -1


def device_of(tensors: Sequence[Tensor]) -> torch.device:
    """Return the device of a group: that of its tensors, 0-dimensional ones on the CPU aside.

    Raises:
        TypeError: they are on several devices.
    """
    device = next((tensor.device for tensor in tensors if tensor.dim()), tensors[0].device)
    for tensor in tensors:
        if tensor.device != device and not is_readable_on(tensor, device):
            raise TypeError(
                f"foreach_map: expected the tensors of a group on one device, got {device} and "
                f"{tensor.device}; move one"
            )
    return device
