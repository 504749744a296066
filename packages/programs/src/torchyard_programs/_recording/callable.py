"""The call of a recorded function, with errors that name the caller's argument."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

from torchyard import uncompiled
from torchyard_programs._errors import ProgramError

__all__ = ["call_recorded", "call_uncompiled"]


def call_recorded(
    function: Callable[..., Any], role: str, names: Sequence[str], values: Sequence[Any]
) -> Any:
    """Call a function with some values and return its result.

    Args:
        function: called once.
        role: its name in messages.
        names: names of the values, for messages.
        values: the positional arguments.

    Raises:
        ProgramError: it is not a function of that many arguments.
    """
    try:
        return function(*values)
    except ProgramError:  # a TypeError
        raise
    except TypeError:
        # Only after an error: a check of the signature takes as long as a recording.
        found = _other_form(function, len(values))
        if not found:
            raise
    raise ProgramError(f"{role}: expected a function that takes ({', '.join(names)}), got {found}")


@uncompiled("it is recorded outside of a graph")
def call_uncompiled(
    function: Callable[..., Any], role: str, names: Sequence[str], values: Sequence[Any]
) -> Any:
    """Do what :func:`call_recorded` does, without Dynamo.

    Outside of a graph but below a function that torch.compile could not trace, Dynamo would compile
    the recorded function alone, and of a ``torch.autograd.Function`` in it see the forward only.
    """
    return call_recorded(function, role, names, values)


def _other_form(function: Any, count: int) -> str:
    """Describe what is not a function of ``count`` arguments; empty for one that is."""
    if not callable(function):
        return type(function).__name__
    try:
        signature = inspect.signature(function)
    except ValueError:  # a C function without a signature
        return ""
    try:
        signature.bind(*range(count))
    except TypeError:
        return f"{getattr(function, '__name__', type(function).__name__)}{signature}"
    return ""
