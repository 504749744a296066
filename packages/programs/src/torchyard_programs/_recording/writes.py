"""What a recorded function must not do beside computing its result: write.

A function is called once, on stand-ins, and what it computes is recorded. A write into a tensor
would happen once, on no values, and a value that is kept elsewhere would be a stand-in.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final
from weakref import ReferenceType

import torch
from torch import Tensor

from torchyard_programs._errors import ProgramError

__all__ = ["check_nothing_kept", "refuse_write", "run_without_writes"]

# Python's spellings of a write, as operators of a tensor and as functions of ``operator``.
_WRITING: Final = frozenset(
    "setitem delitem set delete iadd isub imul idiv itruediv ifloordiv imod ipow iand ior ixor "
    "ilshift irshift imatmul".split()
)


def refuse_write(role: str, name: str, kwargs: Mapping[str, Any]) -> None:
    """Raise ProgramError if a torch function writes into one of its arguments.

    Plain Python, as the tracer is.

    Args:
        role: the recorded function's name in messages.
        name: the torch function's.
        kwargs: what it is given.
    """
    if kwargs.get("out") is not None:
        raise ProgramError(
            f"{role}: {name} with out= writes into a tensor, which cannot be recorded; leave out "
            f"out and use what {name} returns"
        )
    if kwargs.get("inplace"):
        raise ProgramError(
            f"{role}: {name} with inplace=True works in place, which cannot be recorded; leave "
            f"inplace out"
        )
    plain = name
    if plain[:2] == "__" and plain[-2:] == "__":
        plain = plain[2:-2]
        written = plain in _WRITING
    else:
        written = plain[-1:] == "_" or plain in _WRITING
    if not written:
        return
    if plain in ("setitem", "delitem", "set", "delete"):
        raise ProgramError(
            f"{role}: an assignment to a tensor's {'attribute' if plain[-3:] != 'tem' else 'items'}"
            f" cannot be recorded; the function is recorded once and not run per element: return "
            f"what is computed, and write it outside"
        )
    raise ProgramError(
        f"{role}: {name} works in place, which cannot be recorded; use its functional form"
    )


def run_without_writes(
    role: str, function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]
) -> Any:
    """Call a torch function that touches no stand-in, and refuse it if it writes into a tensor.

    Most writes are known by name, before they happen; the others by the tensors' version counters.
    """
    name = function.__name__
    if torch.compiler.is_compiling():
        refuse_write(role, name, kwargs)
        return function(*args, **kwargs)
    # An overload's name follows its operator's, as in add_.Tensor.
    refuse_write(role, name.partition(".")[0], kwargs)
    given = [
        item
        for item in (*args, *kwargs.values())
        if isinstance(item, Tensor) and not item.is_inference()
    ]
    before = [item._version for item in given]
    result = function(*args, **kwargs)
    if before != [item._version for item in given]:
        raise ProgramError(
            f"{role}: {name} wrote into a tensor, which cannot be recorded; use its functional form"
        )
    return result


def check_nothing_kept(role: str, noun: str, made: Iterable[ReferenceType[Any]]) -> None:
    """Raise ProgramError if a stand-in outlived the function that it was made in.

    Args:
        role: the recorded function's name in messages.
        noun: what messages call a value.
        made: the stand-ins.
    """
    if all(item() is None for item in made):
        return
    # A function that calls itself holds its own names until they are collected.
    gc.collect()
    if any(item() is not None for item in made):
        raise ProgramError(
            f"{role}: {noun} or what was computed of it was kept outside of the function (in a "
            f"list, an attribute or an outer name), where it would hold no number: the function is "
            f"recorded once and not run per element; return what is computed"
        )
