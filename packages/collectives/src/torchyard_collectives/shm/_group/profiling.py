"""Events of torch's profiler, by the names that gloo's have: ``shm:all_reduce`` and so on."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor

from torchyard_collectives._torch_compat import profiler_runs, sized_event

__all__ = ["event", "profiled"]


def event(name: str, arguments: Any) -> AbstractContextManager[Any]:
    """Return a context that is one event, with the sizes of the tensors among the arguments."""
    return sized_event(f"shm:{name}", list(_tensors(arguments)))


def profiled(name: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Let calls of a method be events; what it is given first are the tensors."""

    def decorate(method: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(method)
        def call(self: Any, *args: Any, **named: Any) -> Any:
            with event(name, args[:1]) if profiler_runs() else nullcontext():
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
