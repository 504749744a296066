"""The mark of a function whose result torch.compile may take as a constant."""

from __future__ import annotations

from collections.abc import Callable
from typing import ParamSpec, TypeVar

__all__ = ["constant"]

P = ParamSpec("P")
R = TypeVar("R")


def constant(function: Callable[P, R]) -> Callable[P, R]:
    """Have torch.compile call a function while it traces, and keep what it returned.

    It is the mark of ``torch.compiler.assume_constant_result``, which imports the compiler to set
    it: seconds, hundreds of modules and a changed list of warning filters, for every plugin that
    imports a contract of this package.
    """
    setattr(function, "_dynamo_marked_constant", True)  # noqa: B010
    return function
