"""Descriptions of failures in plugins' code, which never fail themselves."""

from __future__ import annotations

from typing import Final

_LIMIT: Final = 300


def describe(error: BaseException) -> str:
    """Return ``Type: message`` on one line, whatever the exception's own ``__str__`` does."""
    try:
        message = " ".join(str(error).split())
    except Exception:
        message = "(its message cannot be shown)"
    if len(message) > _LIMIT:
        message = message[:_LIMIT] + "..."
    return f"{type(error).__name__}: {message}" if message else type(error).__name__


def show(value: object) -> str:
    """Return a value's type and the start of its repr, whatever its own ``__repr__`` does."""
    try:
        text = f"{value!r:.80}"
    except Exception:
        text = "(cannot be shown)"
    return f"{type(value).__name__} {text}"
