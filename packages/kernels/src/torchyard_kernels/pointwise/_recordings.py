"""Programs of functions, cached where a function is known to do the same again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import torch
from torch import Tensor

from torchyard import arguments as checks
from torchyard_kernels.pointwise._arguments import device_of
from torchyard_programs import ProgramError, Recordings, result_count, trace

__all__ = ["cached_recording", "recorded"]

_CPU: Final = torch.device("cpu")
# A union of types would be created in every call.
_LISTS: Final = (list, tuple)


def recorded(
    fn: Callable[..., Any], function: str, lists: Sequence[Any]
) -> tuple[str, tuple[Tensor, ...]]:
    """Return a function's program and the tensors that it captures.

    Args:
        fn: the function.
        function: who asks, for messages.
        lists: what it is computed for; the program depends on their number alone.

    Raises:
        ProgramError: it cannot be recorded, or returns nothing.
    """
    checks.function(function, "fn", fn)
    arguments = len(lists)
    if torch.compiler.is_compiling():
        text, captured = _record(fn, _device(lists), function, arguments, lists)
    else:
        text, captured = _RECORDINGS.recorded(fn, _device(lists), function, arguments)
    return text, tuple(captured)


def _device(lists: Sequence[Any]) -> torch.device:
    """Return where the first group lies."""
    group = [item[0] if isinstance(item, _LISTS) and item else item for item in lists]
    tensors = [item for item in group if isinstance(item, Tensor)]
    return device_of(tensors) if tensors else _CPU


def _tensors(item: Any) -> list[Tensor]:
    """Return the tensors of a list, or of what stands for one."""
    items = item if isinstance(item, _LISTS) else (item,)
    return [one for one in items if isinstance(one, Tensor)]


def _dtypes(lists: Sequence[Any]) -> list[torch.dtype | None]:
    """Return the dtype of each list's tensors; nothing where a list has several.

    Stand-ins of known dtypes are tensors under Dynamo, which so notices what has a backward of its
    own.
    """
    found: list[torch.dtype | None] = []
    for item in lists:
        kinds = {tensor.dtype for tensor in _tensors(item)} or {torch.get_default_dtype()}
        if len(kinds) != 1:
            return []
        found.append(kinds.pop())
    return found


def _record(
    fn: Callable[..., Any],
    device: torch.device,
    function: str,
    arguments: int,
    lists: Sequence[Any] = (),
) -> tuple[str, list[Tensor]]:
    dtypes = _dtypes(lists) or [None] * arguments
    inputs = tuple([(f"x{index}", dtype) for index, dtype in enumerate(dtypes)])
    leaves = [tensor for item in lists for tensor in _tensors(item)]
    text, captured = trace(fn, function, inputs, device, noun="an element", leaves=leaves)
    if result_count(text) == 0:
        raise ProgramError(f"{function}: expected a function that returns something, got ()")
    return text, captured


_RECORDINGS: Final = Recordings(_record)
# Takes the function, the caller's name and the number of lists; see Recordings.cached_recording.
# Dynamo cannot trace it, since it inspects the function.
cached_recording: Final = _RECORDINGS.cached_recording
