"""``torch.nn.functional.scaled_dot_product_attention`` in a graph."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from numbers import Real
from typing import Any

import torch
from torch import Tensor, fx

from torchyard_compile._choice import LeftAlone
from torchyard_compile._graph_nodes import value_of
from torchyard_compile._graph_reroute._attention import Attention
from torchyard_compile._graph_reroute._calls import call_of
from torchyard_compile._graph_reroute._scores import check_captured, element_of

__all__ = ["dot_product_attention"]


def dot_product_attention(node: fx.Node, order: Mapping[fx.Node, int]) -> Attention | None:
    """Return the attention that a call of torch's function is; None for any other node.

    Args:
        node: any node of a graph as a model wrote it.
        order: not read: it is one node.

    Raises:
        LeftAlone: the op of ours computes something else; says why.
    """
    call = call_of(node)
    if call is None or call.name != "scaled_dot_product_attention":
        return None
    query, key, value, mask, dropout_p, causal, scale = (
        call.argument(position, name, default)
        for position, (name, default) in enumerate(
            {
                "query": None,
                "key": None,
                "value": None,
                "attn_mask": None,
                "dropout_p": 0.0,
                "is_causal": False,
                "scale": None,
            }.items()
        )
    )
    if dropout_p:
        raise LeftAlone("dropout_p: torch draws other weights to drop")
    if call.argument(7, "enable_gqa", False):
        raise LeftAlone("enable_gqa")
    of_query, of_key = value_of(query), value_of(key)
    if of_query is None or of_key is None:
        raise LeftAlone("its arguments are no tensors")
    if mask is not None and causal:
        raise LeftAlone("attn_mask and is_causal together")
    if scale is None:
        if not isinstance(of_query.shape[-1], int):
            raise LeftAlone("the size of a head is not known before the graph runs")
        scale = 1 / math.sqrt(of_query.shape[-1])
    elif not isinstance(scale, Real):
        raise LeftAlone("scale is not known before the graph runs")
    if mask is not None:
        check_captured(mask, (*of_query.shape[:-1], of_key.shape[-2]))
        of_mask = value_of(mask)
        shows = of_mask is not None and of_mask.dtype == torch.bool

    def score_mod(tensors: Mapping[fx.Node, Tensor], rank: int) -> Callable[..., Any] | None:
        if mask is None:
            return None

        def masked(score: Any, b: Any, h: Any, q_idx: Any, kv_idx: Any) -> Any:
            indices = (b, h, q_idx, kv_idx) if rank == 4 else (b, q_idx, kv_idx)
            found = element_of(tensors[mask], indices)
            return torch.where(found, score, -math.inf) if shows else score + found

        return masked

    captured = () if mask is None else (mask,)
    return Attention(
        query, key, value, float(scale), captured, score_mod, node, (node,), causal=bool(causal)
    )
