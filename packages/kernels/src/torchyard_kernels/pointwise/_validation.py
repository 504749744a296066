"""The checks of foreach_map's arguments."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from torch import Tensor

from torchyard import arguments as checks
from torchyard_kernels.pointwise._arguments import Arguments

__all__ = ["parse_arguments"]

_LETTERS: Final[dict[type, str]] = {bool: "b", int: "i", float: "f"}
# float64 holds every integer up to here.
_EXACT: Final = 2**53


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
