"""Models that know nothing of it: their attention calls are taken over while a context lasts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh
from torch.nn.functional import scaled_dot_product_attention
from torch.overrides import TorchFunctionMode

from torchyard_attention import BlockMask, create_block_mask, masks
from torchyard_context_parallel._api import context_parallel_attention
from torchyard_context_parallel._sharding import Sharding


class _Attention(TorchFunctionMode):
    def __init__(
        self, mesh: DeviceMesh | dist.ProcessGroup, sharding: Sharding, schedule: str
    ) -> None:
        super().__init__()
        self.calls = 0
        self._given = {"mesh": mesh, "sharding": sharding, "schedule": schedule}
        self._length = sharding.length
        self._causal: dict[torch.device, BlockMask] = {}

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        if func is not scaled_dot_product_attention:
            return func(*args, **(kwargs or {}))
        self.calls += 1
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
        out: Tensor = context_parallel_attention(
            query,
            key,
            value,
            block_mask=self._mask(query.device) if is_causal else None,
            scale=scale,
            **self._given,
        )
        return out

    def _mask(self, device: torch.device) -> BlockMask:
        if device not in self._causal:
            self._causal[device] = create_block_mask(
                masks.causal, None, None, self._length, self._length, device
            )
        return self._causal[device]


@contextmanager
def context_parallel(
    mesh: DeviceMesh | dist.ProcessGroup, sharding: Sharding, *, schedule: str = "ring"
) -> Iterator[None]:
    """Spread the attention of a model over ranks, each of which runs it on its own positions.

    While the context lasts, torch.nn.functional.scaled_dot_product_attention of this thread is
    context_parallel_attention, its ``is_causal`` that of the whole sequence. The model runs on
    ``shard(tokens)`` and takes ``position_ids(sharding)``; everything in it but attention must
    treat positions one by one. Backward works inside of the context and after it.

    Args:
        mesh, sharding, schedule: as context_parallel_attention takes them.

    Raises:
        ValueError: the model's attention asks for a mask of its own or for dropout.
        RuntimeError: the context ended and no attention was computed in it: the model does not call
            scaled_dot_product_attention, and its results are those of each rank's part alone.
    """
    mode = _Attention(mesh, sharding, schedule)
    with mode:
        yield
    if not mode.calls:
        raise RuntimeError(
            "context_parallel: the model did not call scaled_dot_product_attention, so nothing was "
            "spread; choose its sdpa attention, or call context_parallel_attention in it"
        )
