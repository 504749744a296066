"""Trees of tokens: each sees its ancestors, as speculative decoding verifies them."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from torchyard import arguments
from torchyard_attention._mask_blocks._intervals import (
    BlockRows,
    Intervals,
    StructuredMask,
    Visibility,
)
from torchyard_attention._validation import integers, positions


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class _Tree:
    enter: Tensor
    leave: Tensor
    context: int

    def __call__(self, b: Tensor, h: Tensor, q_idx: Tensor, kv_idx: Tensor) -> Tensor:
        beyond = kv_idx - self.context
        node = beyond.clamp(min=0)
        time = self.enter[q_idx]
        ancestor = (self.enter[node] <= time) & (time < self.leave[node])
        return (beyond < 0) | ancestor

    def visibility(self, rows: BlockRows) -> Visibility:
        nodes = self.enter.shape[0]
        if rows.q_length > nodes or rows.kv_length > self.context + nodes:
            raise ValueError(
                f"tree: parents: expected a node for each of {rows.q_length} queries, and for each "
                f"of {rows.kv_length} keys after a context of {self.context}, got {nodes}; make a "
                f"mask of at most {nodes} queries and {self.context + nodes} keys"
            )
        start = torch.zeros_like(rows.first)[:, None]
        end = rows.last[:, None] + (self.context + 1)
        return Visibility(Intervals(start, end), Intervals(start, start + self.context))


def tree(parents: Tensor, *, context: int = 0) -> StructuredMask:
    """Show a node of a tree itself, its ancestors and the context before the tree.

    Args:
        parents: integers [n]: each node's parent, an earlier node; -1 for a root. Queries are the
            nodes.
        context: keys before the tree; key ``context + i`` is node i.
    """
    integers("tree", "parents", parents, "[n]")
    if parents.is_meta:
        raise arguments.wrong_kind(
            "tree", "parents", "values", parents, "a tensor on the meta device has none"
        )
    context = positions("tree", "context", context)
    above = parents.tolist()
    for node, parent in enumerate(above):
        if not -1 <= parent < node:
            raise ValueError(
                f"tree: parents: expected -1 or an earlier node for node {node}, got {parent}"
            )
    # Visit times: an ancestor is entered no later and left only after all below it.
    sizes = [1] * len(above)
    for node in reversed(range(len(above))):
        if above[node] >= 0:
            sizes[above[node]] += sizes[node]
    enter, free, clock = [0] * len(above), [0] * len(above), 0
    for node, parent in enumerate(above):
        if parent < 0:
            enter[node], clock = clock, clock + sizes[node]
        else:
            enter[node] = free[parent]
            free[parent] += sizes[node]
        free[node] = enter[node] + 1
    entered = torch.tensor(enter, dtype=torch.int64, device=parents.device)
    return _Tree(entered, entered + torch.tensor(sizes, device=parents.device), context)
