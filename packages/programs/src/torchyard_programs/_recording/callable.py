"""What a function must be for its call to be recorded, said in its caller's words."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

from torchyard_programs._errors import ProgramError

__all__ = ["called"]


def called(
    function: Callable[..., Any], role: str, names: Sequence[str], values: Sequence[Any]
) -> Any:
    """Return what a function gives for some values.

    Args:
        function: called once.
        role: its name in messages.
        names: of the values, for messages.
        values: by position.

    Raises:
        ProgramError: it is no function of as many arguments.
    """
    try:
        return function(*values)
    except ProgramError:  # one of TypeError's kind
        raise
    except TypeError:
        # Looked at only now: the question takes as long as a recording.
        found = _other_form(function, len(values))
        if not found:
            raise
    raise ProgramError(f"{role}: expected a function that takes ({', '.join(names)}), got {found}")


def _other_form(function: Any, count: int) -> str:
    """Say what is given in place of a function of so many arguments; empty where it is one."""
    if not callable(function):
        return type(function).__name__
    try:
        signature = inspect.signature(function)
    except ValueError:  # one of C without a signature
        return ""
    try:
        signature.bind(*range(count))
    except TypeError:
        return f"{getattr(function, '__name__', type(function).__name__)}{signature}"
    return ""
