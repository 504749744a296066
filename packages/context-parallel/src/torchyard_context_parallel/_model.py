"""Unmodified models: their attention calls are replaced while a context lasts."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch.distributed as dist
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh
from torch.nn.functional import scaled_dot_product_attention
from torch.overrides import TorchFunctionMode

from torchyard_context_parallel._sharding import Sharding
from torchyard_context_parallel._spread import Spread
from torchyard_context_parallel.transformers import is_taken_over, taken_over


class _Attention(TorchFunctionMode):
    def __init__(self, spread: Spread) -> None:
        super().__init__()
        self._spread = spread

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        if func is not scaled_dot_product_attention:
            return func(*args, **(kwargs or {}))
        return self._attend(*args, **(kwargs or {}))

    def _attend(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attn_mask: Tensor | None = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        scale: float | None = None,
        enable_gqa: bool = False,
    ) -> Tensor:
        try:
            _check(query, key, attn_mask, dropout_p, enable_gqa)
        except Exception as error:
            self._spread.refuse(error, query.device)
        mask = self._spread.mask(query.device, low=None, high=1 if is_causal else None)
        out: Tensor = self._spread.attend(query, key, value, mask=mask, scale=scale)
        return out


def _check(
    query: Tensor, key: Tensor, attn_mask: Tensor | None, dropout_p: float, enable_gqa: bool
) -> None:
    if "transformers.modeling_utils" in sys.modules and not is_taken_over():
        raise RuntimeError(
            "context_parallel: transformers was imported inside of it, or has no attention "
            "interface; import it before, in a version that torchyard-attention[transformers] takes"
        )
    if attn_mask is not None:
        raise ValueError(
            f"scaled_dot_product_attention: expected no attn_mask inside context_parallel, got "
            f"one of shape {list(attn_mask.shape)}, which speaks of one rank's positions; use "
            f"is_causal, or call context_parallel_attention with a block_mask of the whole "
            f"sequence"
        )
    if dropout_p:
        raise ValueError(
            f"scaled_dot_product_attention: expected dropout_p 0 inside context_parallel, got "
            f"{dropout_p}; set the model's attention dropout to 0"
        )
    if key.shape[1] != query.shape[1] and not enable_gqa:
        raise ValueError(
            f"scaled_dot_product_attention: expected enable_gqa=True for {query.shape[1]} "
            f"query heads and {key.shape[1]} key heads"
        )


@contextmanager
def context_parallel(
    mesh: DeviceMesh | dist.ProcessGroup,
    sharding: Sharding,
    *,
    schedule: str = "ring",
    position_ids: Tensor | None = None,
) -> Iterator[None]:
    """Spread the attention of a model over ranks, each of which runs it on its own positions.

    While the context lasts, torch.nn.functional.scaled_dot_product_attention of this thread is
    context_parallel_attention, its ``is_causal`` that of the whole sequence; and models of
    transformers that were loaded with attn_implementation "sdpa" or torchyard's get masks of the
    whole sequence. The model runs on ``shard(tokens)`` and takes ``position_ids(sharding)``;
    everything in it but attention must treat positions one by one. Backward works inside of the
    context and after it, but with activation checkpointing only inside of it.

    All ranks enter and leave together. What one rank refuses, every rank refuses.

    Args:
        mesh, sharding, schedule: as context_parallel_attention takes them.
        position_ids: of the whole sequence, integers [length], [1, length] or [B, length], where
            they are not 0 to length - 1. Where they do not go on by one, another sequence begins
            in the row, and queries see no key of another. The model takes ``shard(position_ids)``.

    Raises:
        ValueError: the model's attention asks for a mask of its own or for dropout, or is given
            position ids that are not those of this rank's part.
        torchyard_attention.transformers.UnsupportedArgumentError: a model of transformers wants
            what cannot be spread: a cache of earlier keys, a mask of unknown kind.
        torchyard_collectives.CallMismatchError: ranks call different things.
        RuntimeError: the context ended and no attention was spread in it: the results are those of
            each rank's part alone.
    """
    spread = Spread(mesh, sharding, schedule, position_ids)
    with taken_over(spread), _Attention(spread):
        yield
    spread.agree_to_end()
