"""``run_enduring_ranks``: processes that go on after an error which all ranks raise."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from typing import Any

from .ranks import RanksError, run_ranks

__all__ = ["run_enduring_ranks"]


def _guarded(function: Callable[..., Any], *args: Any) -> tuple[bool, Any]:
    try:
        return True, function(*args)
    except Exception:
        return False, traceback.format_exc()


def run_enduring_ranks(
    backend: str, timeout: float, size: int, function: Callable[..., Any], *args: Any
) -> list[Any]:
    """Do as run_ranks, for many functions of which some are expected to fail, on every rank alike.

    Raises:
        RanksError: a rank failed. Where only some did, the others wait for the whole timeout.
    """
    reports = run_ranks(size, _guarded, function, *args, timeout=timeout, backend=backend)
    if not all(ok for ok, _ in reports):
        raise RanksError(["returned" if ok else text for ok, text in reports])
    return [result for _, result in reports]
