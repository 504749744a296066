"""The errors of capturing and replaying."""

from __future__ import annotations

__all__ = ["GraphBucketError", "GraphParityError", "UncapturableError"]


class UncapturableError(RuntimeError):
    """An operator of the function cannot be part of a graph.

    Attributes:
        op: its name.
        line: ``file:line`` of the caller's code that asked for it.
    """

    def __init__(self, op: str, reason: str, line: str) -> None:
        super().__init__(f"capture: {op} cannot be captured: {reason} (at {line})")
        self.op = op
        self.line = line


class GraphBucketError(ValueError):
    """No captured shape fits the arguments; the message lists the captured ones."""


class GraphParityError(AssertionError):
    """A replay's result differs from the function's own."""
