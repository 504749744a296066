"""Calls of torchyard_context_parallel's public functions that are right, in a group of one."""

from __future__ import annotations

from typing import Any, Final

import torch
import torch.distributed as dist
from torch import Tensor

import torchyard_context_parallel as parallel
from tests.fuzz.harness import call_of
from tests.fuzz.kinds import (
    OTHER,
    REFUSED,
    Kind,
    choice,
    integer,
    number,
    optional,
    tensor,
)
from torchyard_attention import create_block_mask, masks
from torchyard_context_parallel import Sharding

__all__ = ["CALLS"]

_ANY_DTYPE: Final = ("complex", "bool", "long", "uint8", "double", "half", "another dimension")
_MOST: Final = 1 << 48
_DEVICE: Final = optional(OTHER)
_NONE: Final = Kind(lambda v: None if v is None else REFUSED)


def _sharding() -> Sharding:
    return Sharding.contiguous(16, 1)


def _with_mesh(make: Any) -> Any:
    return lambda: {**make(), "mesh": dist.group.WORLD}


def _x(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0))


def _context(**given: Any) -> None:
    with parallel.context_parallel(**given):
        x = _x(1, 2, 16, 8)
        torch.nn.functional.scaled_dot_product_attention(x, x, x)


_COUNTS: Final[dict[str, Any]] = {"length": integer(0, _MOST), "parts": integer(1, 99)}

CALLS: Final = (
    call_of(
        "torchyard_context_parallel.context_parallel_attention",
        _with_mesh(
            lambda: {
                "query": _x(1, 2, 16, 8),
                "key": _x(1, 2, 16, 8),
                "value": _x(1, 2, 16, 8),
                "score_mod": None,
                "block_mask": None,
                "schedule": "ring",
                "scale": 0.5,
                "sharding": _sharding(),
                "key_sharding": None,
                "return_lse": False,
            }
        ),
        calls=("score_mod",),
        schedule=choice("ring", "allgather", "ulysses"),
        scale=optional(number()),
        sharding=optional(OTHER),
    ),
    call_of(
        "torchyard_context_parallel.context_parallel",
        _with_mesh(lambda: {"sharding": _sharding(), "schedule": "ring", "position_ids": None}),
        _context,
        schedule=choice("ring", "allgather", "ulysses"),
    ),
    call_of(
        "torchyard_context_parallel.position_ids",
        _with_mesh(lambda: {"sharding": _sharding(), "device": "cpu"}),
        device=_DEVICE,
    ),
    call_of(
        "torchyard_context_parallel.shard",
        _with_mesh(lambda: {"whole": _x(2, 16), "sharding": _sharding(), "dim": 1}),
        whole=tensor(*_ANY_DTYPE),
        dim=integer(-1, 1),
    ),
    call_of(
        "torchyard_context_parallel.unshard",
        _with_mesh(lambda: {"part": _x(2, 16), "sharding": _sharding(), "dim": 1}),
        part=tensor("long", "uint8", "double", "half", "complex", "bool"),
        dim=integer(-1, 1),
    ),
    call_of(
        "torchyard_context_parallel.Sharding",
        {"length": 16, "parts": (((0, 8),), ((8, 16),))},
        length=integer(16, 16),
    ),
    *(
        call_of(
            f"torchyard_context_parallel.Sharding.{name}",
            {"length": 16, "parts": 2, "multiple": 1},
            multiple=integer(1, _MOST),
            **_COUNTS,
        )
        for name in ("contiguous", "head_tail")
    ),
    call_of(
        "torchyard_context_parallel.Sharding.of_lengths",
        {"lengths": [8, 8]},
        lengths=OTHER,
    ),
    call_of(
        "torchyard_context_parallel.Sharding.balanced",
        lambda: {
            "block_mask": create_block_mask(masks.causal, None, None, 256, 256, device="cpu"),
            "parts": 2,
        },
        parts=integer(1, 99),
    ),
    call_of(
        "torchyard_context_parallel.Sharding.positions",
        {"part": 0, "device": "cpu"},
        lambda **given: _sharding().positions(**given),
        part=integer(0, 0),
        device=_DEVICE,
    ),
    call_of(
        "torchyard_context_parallel.Sharding.take",
        lambda: {"whole": _x(2, 16), "part": 0, "dim": 1},
        lambda **given: _sharding().take(**given),
        whole=tensor(*_ANY_DTYPE, "meta"),
        part=integer(0, 0),
        dim=integer(-1, 1),
    ),
    call_of(
        "torchyard_context_parallel.Sharding.join",
        lambda: {"parts": (_x(2, 16),), "dim": 1},
        lambda **given: _sharding().join(**given),
        parts=OTHER,
        dim=integer(-1, 1),
    ),
)
