"""``uncompiled``: the mark of a function that torch.compile breaks the graph at and leaves alone.

``torch.compiler.disable`` imports the compiler where it decorates: seconds for every process that
imports the package, and a frame more in every call. So its marks are set without it, see
``torchyard.torch_compat``; a torch that lacks a part gets its own decorator.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

from torchyard import arguments

__all__ = ["uncompiled"]

_F = TypeVar("_F", bound=Callable[..., Any])


def uncompiled(reason: str) -> Callable[[_F], _F]:
    """Have torch.compile run a function, and what it calls, uncompiled.

    A compiled function that calls it is compiled up to the call and from there on; with
    ``fullgraph=True`` that is an error of torch's, which shows the reason.

    Args:
        reason: why, for that error.

    Returns:
        a decorator of functions, which returns the function itself.
    """

    arguments.text("uncompiled", "reason", reason)

    def mark(function: _F) -> _F:
        import torch

        from torchyard import torch_compat

        if torch_compat.mark_uncompiled(function, reason):
            return function
        disable: Any = torch.compiler.disable
        return cast("_F", disable(function, reason=reason))

    return mark
