"""Checks of a call's arguments, before anything is sent."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import torch
from torch import Tensor

from torchyard import TransformError, active_transform, arguments, is_batch_of_gradients
from torchyard_attention import BlockMask
from torchyard_context_parallel._parts import digest
from torchyard_context_parallel._place import Place
from torchyard_context_parallel._sharding import Sharding

_SHAPE: Final = "[batch, heads, length, size]"
_DTYPES: Final = (torch.float32, torch.bfloat16, torch.float16, torch.float64)


def check_kinds(
    query: Tensor, key: Tensor, value: Tensor, score_mod: object, scale: object
) -> None:
    """Check of what kind the arguments of context_parallel_attention are."""
    of = "context_parallel_attention"
    for name, tensor in (("query", query), ("key", key), ("value", value)):
        arguments.tensor(
            of, name, tensor, dims=4, dtypes=_DTYPES, shape="[batch, heads, length, size]"
        )
        check_values(of, name, tensor)
    if score_mod is not None:
        arguments.function(of, "score_mod", score_mod)
    if scale is not None:
        arguments.number(of, "scale", scale)


def check_values(of: str, name: str, tensor: Tensor) -> None:
    """Check that a tensor has values, which ranks can exchange."""
    if tensor.is_meta:
        raise arguments.wrong_kind(
            of, name, "values", tensor, "a tensor on the meta device has none"
        )


def check_transform(query: Tensor, key: Tensor, value: Tensor) -> None:
    """Check that a call is not transformed: its exchange has rules for autograd alone."""
    transform = active_transform((query, key, value))
    if transform:
        raise TransformError(
            f"context_parallel_attention under {transform}: it differentiates through backward() "
            "and torch.autograd.grad alone; call it outside of the transform, or compute the "
            "attention in one process"
        )


def check_batch(*gradients: Tensor | None) -> None:
    """Check that backward got one gradient and not a batch of them."""
    if any(gradient is not None and is_batch_of_gradients(gradient) for gradient in gradients):
        raise TransformError(
            "context_parallel_attention under a batch of gradients (is_grads_batched): expected "
            "one gradient per backward, as keys are exchanged in it; call torch.autograd.grad for "
            "each"
        )


def check_tensors(query: Tensor, key: Tensor, value: Tensor) -> None:
    """Check what the ranks' own tensors say of one another."""
    for name, tensor in (("query", query), ("key", key), ("value", value)):
        if tensor.dtype != query.dtype or tensor.device != query.device:
            raise TypeError(
                f"{name}: expected {query.dtype} on {query.device}, as query, got {tensor.dtype} "
                f"on {tensor.device}"
            )
    if key.shape[:3] != value.shape[:3]:
        raise ValueError(
            f"value: expected batch, heads and length {list(key.shape[:3])}, as key, got "
            f"{list(value.shape[:3])}"
        )
    if key.shape[0] != query.shape[0]:
        raise ValueError(f"key: expected batch {query.shape[0]}, as query, got {key.shape[0]}")
    if key.shape[3] != query.shape[3]:
        raise ValueError(f"key: expected size {query.shape[3]}, as query, got {key.shape[3]}")
    if key.shape[1] < 1 or query.shape[1] % key.shape[1]:
        raise ValueError(
            f"key: expected heads that divide the {query.shape[1]} of query, got {key.shape[1]}"
        )


def check_length(name: str, tensor: Tensor, sharding: Sharding | None, place: Place) -> None:
    """Check that a tensor is this rank's part of a sharding; None: the ranks' lengths make one."""
    if sharding is None:
        return
    parts = len(sharding.parts)
    if parts != place.ranks:
        raise ValueError(f"{name}'s sharding: expected {place.ranks} parts, got {parts}")
    expected = sharding.lengths[place.part]
    if tensor.shape[2] != expected:
        raise ValueError(
            f"{name}: expected the {expected} positions that the sharding gives part {place.part}, "
            f"got {tensor.shape[2]}"
        )


def check_mask(mask: BlockMask | None, query: Tensor, queries: Sharding, keys: Sharding) -> None:
    """Check that a mask is the whole sequence's."""
    if mask is None:
        return
    batch, heads, q_length, kv_length = mask.shape
    if (q_length, kv_length) != (queries.length, keys.length):
        raise ValueError(
            f"block_mask: expected the whole sequence's, {queries.length} queries and "
            f"{keys.length} keys, got {q_length} and {kv_length}"
        )
    if batch not in (1, query.shape[0]) or heads not in (1, query.shape[1]):
        raise ValueError(
            f"block_mask: expected batch 1 or {query.shape[0]} and 1 or {query.shape[1]} heads, "
            f"got {batch} and {heads}"
        )


def described(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    schedule: str,
    score_mod: Callable[..., Any] | None,
    captured: Sequence[Tensor],
    mask: BlockMask | None,
    scale: float | None,
    sharding: Sharding | None,
    key_sharding: Sharding | None,
) -> dict[str, object]:
    """Return what every rank must give alike, by the names of the arguments."""
    tensors = (query, key, value, *captured)
    return {
        "dtype": query.dtype,
        "device": query.device.type,
        "query without its length": [*query.shape[:2], query.shape[3]],
        "key without its length": [*key.shape[:2], key.shape[3]],
        "value without its length": [*value.shape[:2], value.shape[3]],
        "schedule": schedule,
        "scale": None if scale is None else float(scale),
        "score_mod": "none" if score_mod is None else "given",
        "captured by score_mod": [f"{tensor.dtype} {list(tensor.shape)}" for tensor in captured],
        "block_mask": "none" if mask is None else digest(mask),
        "sharding": "none" if sharding is None else sharding.text,
        "key_sharding": "none" if key_sharding is None else key_sharding.text,
        # Backward exchanges gradients, so all ranks must come to it or none.
        "gradients": torch.is_grad_enabled() and any(t.requires_grad for t in tensors),
    }
