"""Calls of torchyard_attention's masks and scores that are right."""

from __future__ import annotations

from typing import Any, Final

import torch
from torch import Tensor

import torchyard_attention as attention
from tests.fuzz.harness import Call
from tests.fuzz.kinds import BOOL, FUNCTION, OTHER, Kind, integer, number, optional, tensor
from torchyard_attention import masks, scores

__all__ = ["CALLS"]

_HUGE: Final = 1 << 20
# None of the values is a device.
_DEVICE: Final = OTHER


def _x(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0))


def _plus(score: Any, b: Any, h: Any, q: Any, k: Any) -> Any:
    return score + q - k


def _scored(score_mod: Any) -> Any:
    query, key, value = (_x(1, 2, 16, 8) for _ in range(3))
    return attention.flex_attention(query, key, value, score_mod=score_mod)


def _masked(name: str, function: Any, good: dict[str, Any], **kinds: Kind) -> Call:
    """Return a call that makes a mask and shows it."""

    def run(**given: Any) -> Tensor:
        mask = function(**given)
        blocks = attention.create_block_mask(mask, None, None, 16, 16, "cpu", BLOCK_SIZE=4)
        return blocks.to_dense()

    def make() -> dict[str, Any]:
        return {n: v.clone() if isinstance(v, Tensor) else v for n, v in good.items()}

    # What the mask captures is refused when it is used.
    says = {argument: f"{argument}|mask_mod" for argument in good}
    return Call(f"torchyard_attention.masks.{name}", run, make, kinds, says)


_IDS: Final = torch.arange(16) // 4
_OFFSETS: Final = torch.tensor([0, 4, 16])
# An index tensor may be of any integer dtype.
_INDICES: Final = ("long", "uint8")
_LENGTHS: Final = Kind(integer(0).stands_for, frozenset(_INDICES), is_tensor=True)


CALLS: Final = (
    _masked(
        "block_diffusion",
        masks.block_diffusion,
        {"length": 8, "block": 4},
        length=integer(1),
        block=integer(1),
    ),
    _masked(
        "dilated", masks.dilated, {"size": 8, "dilation": 2}, size=integer(1), dilation=integer(1)
    ),
    _masked(
        "document",
        masks.document,
        {"ids": _IDS, "kv_ids": None},
        ids=tensor(*_INDICES, "another dimension"),
        kv_ids=optional(OTHER),
    ),
    _masked(
        "global_local",
        masks.global_local,
        {"tokens": 2, "size": 4},
        tokens=integer(0),
        size=integer(0),
    ),
    _masked(
        "natten_1d",
        masks.natten_1d,
        {"length": 16, "kernel": 3},
        length=integer(1),
        kernel=integer(1, 3),
    ),
    _masked(
        "natten_2d", masks.natten_2d, {"shape": (4, 4), "kernel": (3, 3)}, shape=OTHER, kernel=OTHER
    ),
    _masked(
        "padding",
        masks.padding,
        {"lengths": torch.tensor([7])},
        lengths=_LENGTHS,
    ),
    _masked(
        "prefix_lm",
        masks.prefix_lm,
        {"lengths": torch.tensor([7])},
        lengths=_LENGTHS,
    ),
    _masked(
        "shared_prefix",
        masks.shared_prefix,
        {"length": 3, "ids": _IDS, "kv_ids": None},
        length=integer(0),
        ids=tensor(*_INDICES, "another dimension"),
        kv_ids=optional(OTHER),
    ),
    _masked(
        "sliding_window",
        masks.sliding_window,
        {"size": 3, "ahead": 0},
        size=integer(0),
        ahead=integer(0),
    ),
    _masked(
        "tree",
        masks.tree,
        {"parents": torch.arange(16) // 2 - 1, "context": 0},
        parents=tensor("long"),
        context=integer(0),
    ),
    _masked(
        "varlen",
        masks.varlen,
        {"offsets": _OFFSETS, "kv_offsets": None, "length": None, "kv_length": None},
        offsets=tensor("long", "uint8"),
        kv_offsets=optional(OTHER),
        length=optional(integer(16, 16)),
        kv_length=optional(integer(16, 16)),
    ),
    Call(
        "torchyard_attention.scores.alibi",
        lambda **given: _scored(scores.alibi(**given)),
        lambda: {"slopes": _x(2), "symmetric": False},
        {"slopes": tensor("double", "half"), "symmetric": BOOL},
        {"slopes": "slopes|score_mod"},
    ),
    Call(
        "torchyard_attention.scores.alibi_slopes",
        scores.alibi_slopes,
        lambda: {"heads": 4, "device": None},
        {"heads": integer(1, _HUGE), "device": optional(_DEVICE)},
    ),
    Call(
        "torchyard_attention.scores.chain",
        lambda score_mods: scores.chain(_plus, score_mods),
        lambda: {"score_mods": _plus},
        {"score_mods": FUNCTION},
    ),
    Call(
        "torchyard_attention.scores.learnable_bias",
        lambda **given: _scored(scores.learnable_bias(**given)),
        lambda: {"bias": _x(1, 2, 16, 16)},
        {"bias": tensor("double", "half", "a dimension less")},
        {"bias": "bias|score_mod"},
    ),
    Call(
        "torchyard_attention.scores.relative_bias",
        lambda **given: _scored(scores.relative_bias(**given)),
        lambda: {"table": _x(2, 31), "buckets": None},
        {"table": tensor("double", "half"), "buckets": optional(OTHER)},
        {"table": "table|score_mod"},
    ),
    Call(
        "torchyard_attention.scores.sinks",
        scores.sinks,
        lambda: {"out": _x(1, 2, 16, 8), "lse": _x(1, 2, 16), "logits": _x(2)},
        {
            "out": tensor("double", "half"),
            "lse": tensor("double", "half"),
            "logits": tensor("double", "half"),
        },
    ),
    Call(
        "torchyard_attention.scores.softcap",
        lambda cap: _scored(scores.softcap(cap)),
        lambda: {"cap": 2.0},
        {"cap": number(above=0)},
    ),
    Call(
        "torchyard_attention.scores.t5_buckets",
        scores.t5_buckets,
        lambda: {"count": 32, "max_distance": 128, "bidirectional": True, "device": None},
        {
            "count": integer(2, _HUGE),
            "max_distance": integer(1),
            "bidirectional": BOOL,
            "device": optional(_DEVICE),
        },
    ),
)
