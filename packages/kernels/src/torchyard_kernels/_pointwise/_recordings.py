"""Programs of functions, kept where a function can be known to do the same again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import torch
from torch import Tensor

from torchyard_programs import ProgramError, Recordings, result_count, trace

__all__ = ["recorded"]


def recorded(
    fn: Callable[..., Any], function: str, arguments: int, device: torch.device
) -> tuple[str, list[Tensor]]:
    """Return a function's program and the tensors that it captures.

    Args:
        fn: the function.
        function: who asks, for messages.
        arguments: how many the function takes.
        device: where it is computed.

    Raises:
        ProgramError: it cannot be recorded, or returns nothing.
    """
    if torch.compiler.is_compiling():
        return _record(fn, device, function, arguments)
    return _RECORDINGS.recorded(fn, device, function, arguments)


def _record(
    fn: Callable[..., Any], device: torch.device, function: str, arguments: int
) -> tuple[str, list[Tensor]]:
    inputs = tuple([(f"x{index}", None) for index in range(arguments)])
    text, captured = trace(fn, function, inputs, device, noun="an element")
    if result_count(text) == 0:
        raise ProgramError(f"{function}: expected a function that returns something, got ()")
    return text, captured


_RECORDINGS: Final = Recordings(_record)
