"""What torch does not publish and this package uses of it: its record of compilations.

Tried with torch 2.13. A torch without a part of it is refused with CompileRecordError's message.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from functools import cache
from typing import Any

import torch

from torchyard import TorchyardError

__all__ = [
    "CompileRecordError",
    "compiled_autograd",
    "failing_at_limit",
    "graph_breaks",
    "newest",
    "recent_compilations",
    "refusals",
    "version_of",
]


class CompileRecordError(TorchyardError, RuntimeError):
    """This torch keeps no record of compilations."""


@cache
def _part(module: str, name: str) -> Any:
    try:
        return getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise CompileRecordError(f"torch {torch.__version__} has no {module}.{name}") from error


def newest() -> object:
    """Return what stands for the newest compilation: another one where torch compiled since."""
    events = _part("torch._dynamo.utils", "get_compilation_metrics")()
    return events[-1] if events else None


def graph_breaks() -> Mapping[str, int]:
    """Return why graphs were broken, and how often."""
    return dict(_part("torch._dynamo.utils", "counters")["graph_break"])


def recent_compilations() -> list[Mapping[str, Any]]:
    """Return torch's record of the newest compilations, the oldest first."""
    return [vars(event) for event in _part("torch._dynamo.utils", "get_compilation_metrics")()]


def failing_at_limit() -> AbstractContextManager[object]:
    """Return a context in which reaching the limit of recompilations raises.

    Outside of it the function runs uncompiled from then on.
    """
    patch = _part("torch._dynamo", "config").patch
    found: AbstractContextManager[object] = patch(fail_on_recompile_limit_hit=True)
    return found


def refusals() -> tuple[type[Exception], ...]:
    """Return what torch raises where it would not compile a whole function."""
    names = ("Unsupported", "FailOnRecompileLimitHit", "RecompileLimitExceeded")
    exc = _part("torch._dynamo", "exc")
    return tuple(getattr(exc, name) for name in names if hasattr(exc, name))


def version_of(tensor: torch.Tensor) -> int:
    """Return how often a tensor was written to, as autograd counts it; -1 where nothing counts."""
    return -1 if tensor.is_inference() else int(tensor._version)


def compiled_autograd(compiler: Callable[[Any], Any]) -> AbstractContextManager[object]:
    """Return a context in which backward passes are graphs that ``compiler`` is given."""
    enable = _part("torch._dynamo.compiled_autograd", "_enable")
    return enable(compiler)  # type: ignore[no-any-return]
