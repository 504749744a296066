"""Calls of torchyard_attention's public functions that are right."""

from __future__ import annotations

from typing import Any, Final

import torch
from torch import Tensor

import torchyard_attention as attention
from tests.fuzz.harness import Call
from tests.fuzz.kinds import (
    BOOL,
    FUNCTION,
    OTHER,
    REFUSED,
    TEXT,
    Kind,
    integer,
    number,
    optional,
    tensor,
)
from torchyard_attention import create_block_mask
from torchyard_attention.dropout import new_seed
from torchyard_attention.transformers import register

__all__ = ["CALLS"]

_HUGE: Final = 1 << 20
# None of the values is a device.
_DEVICE: Final = OTHER


def _x(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0))


def _qkv() -> dict[str, Any]:
    return {"query": _x(1, 2, 16, 8), "key": _x(1, 2, 16, 8), "value": _x(1, 2, 16, 8)}


def _plus(score: Any, b: Any, h: Any, q: Any, k: Any) -> Any:
    return score + q - k


def _back(b: Any, h: Any, q: Any, k: Any) -> Any:
    return q >= k


_QKV: Final = {name: tensor() for name in ("query", "key", "value")}
_AUX: Final = Kind(lambda v: None if v is None else REFUSED)
_SHAPES: Final = ("another dimension", "a dimension less", "one element", "empty")
_CALL: Final = {
    **_QKV,
    "score_mod": Kind(lambda v: None if v is None else REFUSED),
    "block_mask": Kind(lambda v: None if v is None else REFUSED),
    "scale": optional(number()),
    "enable_gqa": BOOL,
}


def _flex() -> dict[str, Any]:
    block_mask = create_block_mask(_back, None, None, 16, 16, device="cpu")
    return {
        **_qkv(),
        "score_mod": _plus,
        "block_mask": block_mask,
        "scale": 0.5,
        "enable_gqa": False,
    }


def _gradients(**given: Any) -> Any:
    query, key, value = given["query"], given["key"], given["value"]
    return attention.attention_gradients(
        query,
        key,
        value,
        **{name: given[name] for name in given if name not in ("query", "key", "value")},
    )


def _with_out() -> dict[str, Any]:
    given = _qkv()
    out, aux = attention.flex_attention(*given.values(), return_aux=attention.AuxRequest(lse=True))
    return {**given, "out": out, "lse": aux.lse, "grad_out": _x(1, 2, 16, 8), "grad_lse": None}


def _to_mask() -> dict[str, Any]:
    return {"mask_mod": _back, "B": None, "H": None, "Q_LEN": 256, "KV_LEN": 256, "device": "cpu"}


def _with_aux(**given: Any) -> Any:
    return attention.flex_attention(**_qkv(), return_aux=attention.AuxRequest(**given))


_ANY: Final = (
    *("meta", "complex", "bool", "long", "uint8", "double", "half", "freed", "shortened"),
    *("another dimension", "a dimension less", "one element", "empty", "sparse", "nested"),
)
_MASK_SIZES: Final = {
    "mask_mod": FUNCTION,
    "B": optional(integer(1, 64)),
    "H": optional(integer(1, 64)),
    "Q_LEN": integer(0, _HUGE),
    "KV_LEN": integer(0, _HUGE),
    "device": optional(_DEVICE),
}


_OFFSETS: Final = torch.tensor([0, 4, 16])

CALLS: Final = (
    Call(
        "torchyard_attention.flex_attention",
        attention.flex_attention,
        lambda: {
            **_flex(),
            "return_lse": False,
            "kernel_options": None,
            "return_aux": None,
            "implementation": None,
        },
        {
            **_CALL,
            "return_lse": BOOL,
            "kernel_options": Kind(
                # torch's own options are without effect.
                lambda v: v if v is None or isinstance(v, dict) else REFUSED,
                free=True,
            ),
            "return_aux": _AUX,
            "implementation": _AUX,
        },
        calls=frozenset(("score_mod",)),
    ),
    Call(
        "torchyard_attention.explain",
        attention.explain,
        lambda: {**_flex(), "backward": False},
        {**_CALL, "backward": BOOL},
        calls=frozenset(("score_mod",)),
    ),
    Call(
        "torchyard_attention.attention_gradients",
        _gradients,
        _with_out,
        {
            **_QKV,
            "out": tensor(),
            "lse": tensor(),
            "grad_out": tensor(),
            "grad_lse": Kind(lambda v: None if v is None else REFUSED),
        },
    ),
    Call(
        "torchyard_attention.captured_tensors",
        attention.captured_tensors,
        lambda: {"score_mod": _plus, "query": _x(1, 2, 16, 8)},
        {"score_mod": _CALL["score_mod"], "query": tensor("double", "half", *_SHAPES, "meta")},
        calls=frozenset(("score_mod",)),
    ),
    Call(
        "torchyard_attention.varlen_attention",
        attention.varlen_attention,
        lambda: {
            "query": _x(16, 2, 8),
            "key": _x(16, 2, 8),
            "value": _x(16, 2, 8),
            "cu_seqlens_q": _OFFSETS.clone(),
            "cu_seqlens_k": _OFFSETS.clone(),
            "max_seqlen_q": 12,
            "max_seqlen_k": 12,
            "causal": False,
            "score_mod": None,
            "scale": None,
            "enable_gqa": False,
            "return_aux": None,
        },
        {
            **_QKV,
            "cu_seqlens_q": tensor("long"),
            "cu_seqlens_k": Kind(
                lambda v: None if v is None else REFUSED, frozenset(("long",)), True
            ),
            "max_seqlen_q": optional(integer(12, 1 << 62)),
            "max_seqlen_k": optional(integer(12, 1 << 62)),
            "causal": BOOL,
            "score_mod": _CALL["score_mod"],
            "scale": optional(number()),
            "enable_gqa": BOOL,
            "return_aux": _AUX,
        },
        calls=frozenset(("score_mod",)),
    ),
    Call(
        "torchyard_attention.create_block_mask",
        lambda **given: create_block_mask(**given).to_dense(),
        lambda: {**_to_mask(), "BLOCK_SIZE": 128, "_compile": False, "separate_full_blocks": True},
        {
            **_MASK_SIZES,
            "BLOCK_SIZE": integer(1, 1 << 40),
            "_compile": BOOL,
            "separate_full_blocks": BOOL,
        },
        calls=frozenset(("mask_mod",)),
    ),
    Call(
        "torchyard_attention.create_mask",
        attention.create_mask,
        _to_mask,
        _MASK_SIZES,
        calls=frozenset(("mask_mod",)),
    ),
    Call(
        "torchyard_attention.and_masks",
        lambda mask_mods: attention.and_masks(_back, mask_mods),
        lambda: {"mask_mods": _back},
        {"mask_mods": FUNCTION},
    ),
    Call(
        "torchyard_attention.or_masks",
        lambda mask_mods: attention.or_masks(_back, mask_mods),
        lambda: {"mask_mods": _back},
        {"mask_mods": FUNCTION},
    ),
    Call(
        "torchyard_attention.merge_states",
        attention.merge_states,
        lambda: {"outs": _x(2, 1, 2, 16, 8), "lses": _x(2, 1, 2, 16)},
        {"outs": tensor("double", "half", "one element"), "lses": tensor("double", "half")},
    ),
    Call(
        "torchyard_attention.autocast_inputs",
        attention.autocast_inputs,
        _qkv,
        {name: tensor(*_ANY) for name in ("query", "key", "value")},
    ),
    Call(
        "torchyard_attention.noop_mask",
        lambda mask_mod: attention.create_mask(mask_mod, None, None, 4, 4),
        lambda: {"mask_mod": attention.noop_mask},
        {"mask_mod": FUNCTION},
        calls=frozenset(("mask_mod",)),
    ),
    Call(
        "torchyard_attention.AuxRequest",
        _with_aux,
        lambda: {"lse": True, "max_scores": False},
        {"lse": BOOL, "max_scores": BOOL},
        {"lse": r"return_aux\.lse", "max_scores": r"return_aux\.max_scores"},
    ),
    Call(
        "torchyard_attention.transformers.register",
        register,
        lambda: {"name": "torchyard", "implementation": None},
        {"name": TEXT, "implementation": optional(TEXT)},
    ),
    Call(
        "torchyard_attention.dropout.new_seed",
        new_seed,
        lambda: {"device": torch.device("cpu")},
        {"device": _DEVICE},
    ),
)
