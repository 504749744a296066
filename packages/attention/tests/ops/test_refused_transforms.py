"""What has no derivative is refused by name under a transform."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.func import grad, jvp, vmap

from torchyard_attention import (
    AuxRequest,
    PagedKVCache,
    TransformError,
    attention_gradients,
    create_block_mask,
    flex_attention,
    varlen_attention,
)

STARTS = torch.tensor([0, 4, 4, 9])
PACKED = torch.randn(9, 2, 4, generator=torch.Generator().manual_seed(40), dtype=torch.float64)


def _step(x: Tensor) -> Tensor:
    cache = PagedKVCache(4, 16, kv_heads=2, head_dim=4, dtype=torch.float64)
    step = cache.extend([cache.open()], 9)
    step.write(PACKED, PACKED)
    out: Tensor = step.attention(x)
    return out


def _part(x: Tensor) -> Tensor:
    query = x.transpose(0, 1)[None]
    out, aux = flex_attention(query, query, query, return_aux=AuxRequest(lse=True))
    grads = attention_gradients(query, query, query, out, aux.lse, torch.ones_like(out))
    return grads.query


def _mapped_mask(x: Tensor) -> Tensor:
    limits = x[:, 0, 0]
    create_block_mask(lambda b, h, q, k: limits[k] > 0, None, None, 9, 9, "cpu")
    return x


REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    "paged, jvp": (lambda: jvp(_step, (PACKED,), (PACKED,)), r"PagedStep\.attention under forward"),
    "paged, vmap": (lambda: vmap(_step)(PACKED[None]), r"PagedStep\.attention under torch\.vmap"),
    "part, grad": (
        lambda: grad(lambda x: _part(x).square().sum())(PACKED),
        "attention_gradients under a gradient",
    ),
    "part, create_graph": (
        lambda: _part(PACKED.clone().requires_grad_()).sum().backward(),
        "attention_gradients under a gradient",
    ),
    "part, jvp": (lambda: jvp(_part, (PACKED,), (PACKED,)), "attention_gradients under forward"),
    "part, vmap": (lambda: vmap(_part)(PACKED[None]), r"attention_gradients under torch\.vmap"),
    "mask, vmap": (
        lambda: vmap(_mapped_mask)(PACKED[None]),
        r"create_block_mask under torch\.vmap",
    ),
    "packed lengths, vmap": (
        lambda: vmap(lambda starts: varlen_attention(PACKED, PACKED, PACKED, starts))(
            STARTS[None].repeat(2, 1)
        ),
        r"flex_attention under torch\.vmap: expected a block_mask",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_has_no_derivative_is_refused_by_name(name: str) -> None:
    call, message = REFUSED[name]
    with pytest.raises(TransformError, match=message):
        call()
