"""Events of torch's profiler, by the names that gloo's have: ``shm:all_reduce`` and so on."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Final

import torch
from torch import Tensor
from torch.autograd import profiler

__all__ = ["event", "profiled", "profiling"]

# An event with sizes. Not public; without it, events have none.
_SIZED: Final[Any] = getattr(getattr(torch._C, "_profiler", None), "_RecordFunctionFast", None)


def profiling() -> bool:
    """Whether a profiler runs in this thread."""
    # Not public; without it, nothing is recorded.
    return bool(getattr(profiler, "_is_profiler_enabled", False))


def event(name: str, arguments: Any) -> AbstractContextManager[Any]:
    """Return a context that is one event, with the sizes of the tensors among the arguments."""
    if _SIZED is None:
        return profiler.record_function(f"shm:{name}")
    made: AbstractContextManager[Any] = _SIZED(f"shm:{name}", list(_tensors(arguments)))
    return made


def profiled(name: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Let calls of a method be events; what it is given first are the tensors."""

    def decorate(method: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(method)
        def call(self: Any, *args: Any, **named: Any) -> Any:
            with event(name, args[:1]) if profiling() else nullcontext():
                return method(self, *args, **named)

        return call

    return decorate


def _tensors(arguments: Any) -> Iterator[Tensor]:
    """Yield the tensors of lists of lists in order."""
    if isinstance(arguments, Tensor):
        # As gloo does, which reduces complex numbers as pairs.
        yield torch.view_as_real(arguments) if arguments.is_complex() else arguments
    elif isinstance(arguments, (list, tuple)):
        for each in arguments:
            yield from _tensors(each)
