"""A kernel with everything it is started with."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass
from threading import Lock
from typing import Any, Final

from torchyard_triton._interpreter import interprets

__all__ = ["Launch", "runs_by"]


@dataclass(frozen=True, slots=True, eq=False)
class Launch:
    """A kernel and everything it is started with.

    Attributes:
        kernel: a jit function.
        grid: how many programs, by axis.
        arguments: of its parameters that are no constants, in order.
        constants: its constants, and the compiler's options ``num_warps`` and ``num_stages``.
    """

    kernel: Any
    grid: tuple[int, ...]
    arguments: tuple[Any, ...]
    constants: dict[str, Any]

    def run(self) -> None:
        """Start the kernel; a grid of nothing is nothing."""
        runner = _RUNNER.get()
        if runner is not None:
            runner(self)
        elif 0 not in self.grid:
            # The interpreter has one grid, whose programs of two threads would mix.
            with _TURN if interprets() else nullcontext():
                self.kernel[self.grid](*self.arguments, **self.constants)


_TURN: Final = Lock()
_RUNNER: ContextVar[Callable[[Launch], None] | None] = ContextVar("runner", default=None)


@contextmanager
def runs_by(runner: Callable[[Launch], None]) -> Iterator[None]:
    """Start kernels by a function, as tests do that have no such device."""
    token = _RUNNER.set(runner)
    try:
        yield
    finally:
        _RUNNER.reset(token)
