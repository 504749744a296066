"""Positions of a collective's arguments: in torch's operators, and in a process group's methods."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

__all__ = ["METHODS", "OPERATORS", "Layout"]


@dataclass(frozen=True, slots=True)
class Layout:
    """One operator or method: torch's public name of it, and positions of its arguments.

    Attributes:
        op: the public name.
        inputs, outputs: tensors, lists of tensors, or lists of lists of them; -1 for none.
        group: the process group; -1 for a method, which has it as ``self``.
        reduce, root: of an operator; a method has both in its options.
        options: of a method.
        splits: output splits, followed by input splits.
        peer: the other end of a message, a rank in the group.
        tag: of a message.
        from_any: a receive that names no peer.
    """

    op: str
    inputs: int = 0
    outputs: int = -1
    group: int = -1
    reduce: int = -1
    root: int = -1
    options: int = -1
    splits: int = -1
    peer: int = -1
    tag: int = -1
    from_any: bool = False

    @property
    def is_p2p(self) -> bool:
        """Whether this is a send or a receive."""
        return self.peer >= 0 or self.from_any


# The schemas of torch.ops.c10d.
OPERATORS: Final[Mapping[str, Layout]] = {
    "allreduce_": Layout("all_reduce", group=1, reduce=2),
    "allreduce_coalesced_": Layout("all_reduce_coalesced", group=1, reduce=2),
    "broadcast_": Layout("broadcast", group=1, root=2),
    "reduce_": Layout("reduce", group=1, reduce=2, root=3),
    "allgather_": Layout("all_gather", inputs=1, outputs=0, group=2),
    "allgather_coalesced_": Layout("all_gather_coalesced", inputs=1, outputs=0, group=2),
    "_allgather_base_": Layout("all_gather_into_tensor", inputs=1, outputs=0, group=2),
    "allgather_into_tensor_coalesced_": Layout(
        "all_gather_into_tensor_coalesced", inputs=1, outputs=0, group=2
    ),
    "reduce_scatter_": Layout("reduce_scatter", inputs=1, outputs=0, group=2, reduce=3),
    "_reduce_scatter_base_": Layout(
        "reduce_scatter_tensor", inputs=1, outputs=0, group=2, reduce=3
    ),
    "reduce_scatter_tensor_coalesced_": Layout(
        "reduce_scatter_tensor_coalesced", inputs=1, outputs=0, group=2, reduce=3
    ),
    "gather_": Layout("gather", inputs=1, outputs=0, group=2, root=3),
    "scatter_": Layout("scatter", inputs=1, outputs=0, group=2, root=3),
    "alltoall_": Layout("all_to_all", inputs=1, outputs=0, group=2),
    "alltoall_base_": Layout("all_to_all_single", inputs=1, outputs=0, group=2, splits=3),
    "barrier": Layout("barrier", inputs=-1, group=1),
    "monitored_barrier_": Layout("monitored_barrier", inputs=-1, group=1),
    "send": Layout("send", group=1, peer=2, tag=3),
    "recv_": Layout("recv", inputs=-1, outputs=0, group=1, peer=2, tag=3),
    "recv_any_source_": Layout("recv", inputs=-1, outputs=0, group=1, tag=2, from_any=True),
}

_GATHER_SINGLE: Final = Layout("all_gather_into_tensor", inputs=1, outputs=0, options=2)
_GATHER_MANY: Final = Layout("all_gather_into_tensor_coalesced", inputs=1, outputs=0, options=2)
_SCATTER_SINGLE: Final = Layout("reduce_scatter_tensor", inputs=1, outputs=0, options=2)
_SCATTER_MANY: Final = Layout("reduce_scatter_tensor_coalesced", inputs=1, outputs=0, options=2)
_EXCHANGE_SINGLE: Final = Layout("all_to_all_single", inputs=1, outputs=0, splits=2, options=4)

# What torch calls on a process group, by the names of torch 2.11 to 2.13.
METHODS: Final[Mapping[str, Layout]] = {
    "allreduce": Layout("all_reduce", options=1),
    "allreduce_coalesced": Layout("all_reduce_coalesced", options=1),
    "broadcast": Layout("broadcast", options=1),
    "reduce": Layout("reduce", options=1),
    "allgather": Layout("all_gather", inputs=1, outputs=0, options=2),
    "allgather_coalesced": Layout("all_gather_coalesced", inputs=1, outputs=0, options=2),
    "_allgather_base": _GATHER_SINGLE,
    "all_gather_single": _GATHER_SINGLE,
    "allgather_into_tensor_coalesced": _GATHER_MANY,
    "all_gather_single_coalesced": _GATHER_MANY,
    "reduce_scatter": Layout("reduce_scatter", inputs=1, outputs=0, options=2),
    "_reduce_scatter_base": _SCATTER_SINGLE,
    "reduce_scatter_single": _SCATTER_SINGLE,
    "reduce_scatter_tensor_coalesced": _SCATTER_MANY,
    "reduce_scatter_single_coalesced": _SCATTER_MANY,
    "gather": Layout("gather", inputs=1, outputs=0, options=2),
    "scatter": Layout("scatter", inputs=1, outputs=0, options=2),
    "alltoall": Layout("all_to_all", inputs=1, outputs=0, options=2),
    "alltoall_base": _EXCHANGE_SINGLE,
    "all_to_all_single": _EXCHANGE_SINGLE,
    "barrier": Layout("barrier", inputs=-1, options=0),
    "monitored_barrier": Layout("monitored_barrier", inputs=-1),
    "send": Layout("send", peer=1, tag=2),
    "recv": Layout("recv", inputs=-1, outputs=0, peer=1, tag=2),
    "recv_anysource": Layout("recv", inputs=-1, outputs=0, tag=1, from_any=True),
}
