"""Calls of ``flex_attention`` and of ``create_block_mask`` as nodes of a graph, for passes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Final

import torch
from torch import Tensor

from torchyard import GraphCall
from torchyard_attention._api import ScoreModFunction, checked_call
from torchyard_attention._block_mask._recorded import MaskMod, record_mask
from torchyard_attention._mods._trace import CAUSAL
from torchyard_attention._ops._arguments import flattened, or_none
from torchyard_attention._ops._computation import request_of
from torchyard_attention._ops._operators import OPERATORS
from torchyard_attention.contract import BACKWARD, FORWARD, MaskBlocks

__all__ = ["GraphMask", "graph_call", "graph_mask"]

_BLOCK_SIZE: Final = (128, 128)


@dataclass(frozen=True, slots=True, eq=False)
class GraphMask:
    """The node of a mask.

    Attributes:
        op: its target; its results are the mask's tensors.
        program: of the mask_mod.
        captured: the tensors that it captures, in the program's order.
        blocks: the mask, of tensors without sizes that stand for the results, in their order.
    """

    op: Callable[..., Any]
    program: str
    captured: tuple[Tensor, ...]
    blocks: MaskBlocks

    def arguments(self, anchor: Any, sizes: tuple[Any, Any, Any, Any]) -> tuple[Any, ...]:
        """Return the node's arguments.

        Args:
            anchor: any tensor on the device of the mask.
            sizes: batches and heads that it is evaluated for, and the lengths of queries and keys;
                numbers or what stands for them.
        """
        return (anchor, or_none(self.captured), self.program, *sizes, *_BLOCK_SIZE)


def graph_mask(mask_mod: MaskMod) -> GraphMask:
    """Return the node that makes the mask of a mask_mod.

    Args:
        mask_mod: as of ``create_block_mask``; what it captures is on the device ``meta``.

    Raises:
        ProgramError: it does something that cannot be recorded.
    """
    program, captured = record_mask(mask_mod, torch.device("meta"))
    stand_ins = [torch.empty(0, device="meta") for _ in range(6)]
    blocks = MaskBlocks(_BLOCK_SIZE, *stand_ins, causal=program in CAUSAL)
    return GraphMask(OPERATORS.in_graph("block_mask"), program, tuple(captured), blocks)


def graph_call(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    score_mod: ScoreModFunction | None = None,
    mask: GraphMask | None = None,
    scale: float | None = None,
    *,
    grad: bool = False,
) -> GraphCall:
    """Return the node whose first result is what ``flex_attention`` returns for these arguments.

    Args:
        query, key, value, score_mod, scale: as of ``flex_attention``, on the device ``meta``: sizes
            and dtypes are read alone. key and value have query's batches.
        mask: of the same sizes; None hides no key.
        grad: whether gradients will be asked for, of query, key, value and of the floating point
            tensors that score_mod captures.

    Raises:
        TypeError, ValueError: an argument does not fit; names it.
        ProgramError: score_mod does something that cannot be recorded.
    """
    call = checked_call(query, key, value, score_mod, None, scale)
    call = replace(call, mask=None if mask is None else mask.blocks, lse=grad, grad=grad)
    deterministic = torch.are_deterministic_algorithms_enabled()
    requests: dict[str, Any] = {FORWARD: request_of(call, deterministic=deterministic)}
    if grad:
        captured = () if call.score_mod is None else call.score_mod.captured
        wanted = tuple(tensor.is_floating_point() for tensor in captured)
        backward = replace(call, captured_grad=wanted)
        requests[BACKWARD] = request_of(backward, deterministic=deterministic)
    return GraphCall(
        OPERATORS.in_graph("forward"),
        (*flattened(call), grad, False, grad, ""),
        requests,
        call.query.dtype,
    )
