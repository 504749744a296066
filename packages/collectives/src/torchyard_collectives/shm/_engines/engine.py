"""The interface of engines: collectives on contiguous tensors in CPU memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from torch import Tensor

from torchyard_collectives.shm._errors import SharedMemoryError

__all__ = ["Engine", "Message"]


class Message(Protocol):
    """A send or a receive under way."""

    def look(self) -> int | None:
        """Return the other end's rank if it is done, else None. Raises what went wrong."""
        ...

    def wait(self, milliseconds: int) -> int:
        """Wait until it is done, and return the other end's rank. Raises what went wrong."""
        ...


class Engine(Protocol):
    """Collectives, one after another. Each blocks, and raises SharedMemoryError where it fails.

    Tensors are contiguous, in CPU memory; ``operation`` is a number of ReduceOp. Ranks are the
    group's.
    """

    def all_reduce(self, tensor: Tensor, operation: int, milliseconds: int) -> None:
        """Combine everyone's tensor, in place."""
        ...

    def reduce(self, tensor: Tensor, operation: int, root: int, milliseconds: int) -> None:
        """Likewise, on one rank; the others' stay as they are."""
        ...

    def reduce_scatter(
        self, out: Tensor, sources: Sequence[Tensor], operation: int, milliseconds: int
    ) -> None:
        """Combine everyone's ``sources[r]`` into rank r's ``out``."""
        ...

    def all_gather(self, outs: Sequence[Tensor], tensor: Tensor, milliseconds: int) -> None:
        """Copy rank r's tensor to everyone's ``outs[r]``."""
        ...

    def broadcast(self, tensor: Tensor, root: int, milliseconds: int) -> None:
        """Copy one rank's tensor to everyone's."""
        ...

    def gather(self, outs: Sequence[Tensor], tensor: Tensor, root: int, milliseconds: int) -> None:
        """Copy rank r's tensor to the root's ``outs[r]``; elsewhere ``outs`` is empty."""
        ...

    def scatter(self, out: Tensor, sources: Sequence[Tensor], root: int, milliseconds: int) -> None:
        """Copy the root's ``sources[r]`` to rank r's ``out``; elsewhere ``sources`` is empty."""
        ...

    def all_to_all(
        self, outs: Sequence[Tensor], sources: Sequence[Tensor], milliseconds: int
    ) -> None:
        """Copy rank r's ``sources[s]`` to rank s's ``outs[r]``."""
        ...

    def barrier(self, milliseconds: int) -> None:
        """Wait until everyone is here."""
        ...

    def send(self, tensor: Tensor, rank: int, tag: int) -> Message:
        """Start to send a tensor."""
        ...

    def receive(self, tensor: Tensor, rank: int, tag: int) -> Message:
        """Start to receive a tensor, from any rank where ``rank`` is -1."""
        ...

    def leave(self, error: SharedMemoryError | None = None) -> None:
        """Take part no more, for a reason that others should hear."""
        ...

    def describe(self) -> dict[str, Any]:
        """Return what a person may want to know of the group's ranks and hosts."""
        ...
