"""Side effects that a recorded function may not have: writes, and stored stand-ins.

A function is called once, on stand-ins. A write to a tensor would happen once, without values, and
a value that the function stores elsewhere would be a stand-in.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final
from weakref import ReferenceType

import torch
from torch import Tensor

from torchyard_programs._errors import ProgramError

__all__ = ["check_no_leak", "function_name", "refuse_write", "run_without_writes"]

# Names of in-place operators, as tensor methods and as functions of ``operator``.
_WRITING: Final = frozenset(
    "setitem delitem set delete iadd isub imul idiv itruediv ifloordiv imod ipow iand ior ixor "
    "ilshift irshift imatmul".split()
)


def function_name(function: Any) -> str:
    """Return a torch function's name.

    Dynamo of torch 2.15 names a reflected operator, such as ``__rsub__``, after the function of
    torch's that wraps it.
    """
    name: str = function.__name__
    return function.__wrapped__.__name__ if name == "wrapped" else name


def refuse_write(role: str, name: str, kwargs: Mapping[str, Any]) -> None:
    """Raise ProgramError if a torch function writes into one of its arguments.

    Plain Python, as the tracer is.

    Args:
        role: the recorded function's name in messages.
        name: the torch function's name.
        kwargs: its keyword arguments.
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
    """Call a torch function without stand-ins, and refuse it if it writes to a tensor.

    Most writes are recognised by name, before they happen; others by the version counters.
    """
    name = function_name(function)
    if torch.compiler.is_compiling():
        refuse_write(role, name, kwargs)
        return function(*args, **kwargs)
    # The name may have an overload, as in add_.Tensor.
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


def check_no_leak(role: str, noun: str, values: Iterable[ReferenceType[Any]]) -> None:
    """Raise ProgramError if a stand-in outlived the call of the recorded function.

    Args:
        role: the recorded function's name in messages.
        noun: the word for a value in messages.
        values: the stand-ins.
    """
    if all(value() is None for value in values):
        return
    # A recursive function is part of a reference cycle.
    gc.collect()
    if any(value() is not None for value in values):
        raise ProgramError(
            f"{role}: {noun} or what was computed of it was kept outside of the function (in a "
            f"list, an attribute or an outer name), where it would hold no number: the function is "
            f"recorded once and not run per element; return what is computed"
        )
