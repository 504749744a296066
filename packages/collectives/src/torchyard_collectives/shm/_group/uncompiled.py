"""Exclude classes of this package from torch.compile."""

from __future__ import annotations

from types import FunctionType
from typing import TypeVar

from torchyard import uncompiled

__all__ = ["eager"]

_T = TypeVar("_T", bound=type)


def eager(kind: _T) -> _T:
    """Have torch.compile run a class's methods, and what they call, uncompiled.

    After a graph break, as at ``torch.distributed.barrier``, it compiles each function that is
    called. It cannot trace a process group's own attributes, and there is nothing to gain.
    """
    for name, member in list(vars(kind).items()):
        if isinstance(member, FunctionType):
            setattr(kind, name, uncompiled("it is a call of a process group")(member))
    return kind
