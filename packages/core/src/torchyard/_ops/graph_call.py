"""A call of an op as a node of a graph, for passes of compilers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from torchyard._contracts.contract import Request

if TYPE_CHECKING:
    import torch

__all__ = ["GraphCall"]


@dataclass(frozen=True, slots=True, eq=False)
class GraphCall:
    """What a node of a call has, and what the registry is asked for it.

    Made of tensors on the device ``meta``, so that nothing is computed and no value is read.

    Attributes:
        op: its target; one that changes with the package's sources, so that a cached graph of
            other sources is not found.
        arguments: its arguments. The tensors in it are those that were given, and those that
            functions captured, for the node's inputs to take their places.
        requests: by contract what is asked; a call that gradients are wanted of asks for its
            backward pass too.
        dtype: of the result, or of the first result.
    """

    op: Callable[..., Any]
    arguments: tuple[Any, ...]
    requests: Mapping[str, Request]
    dtype: torch.dtype

    def on(self, device: str) -> GraphCall:
        """Return the call with requests for a device.

        Args:
            device: torch's device type.
        """
        found: dict[str, Any] = dict(self.requests)
        return replace(
            self, requests={key: replace(item, device=device) for key, item in found.items()}
        )
