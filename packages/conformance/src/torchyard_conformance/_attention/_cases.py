"""The calls on which laws are checked."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any, Final

import torch

from torchyard_attention.cases import CASES, Case

__all__ = ["CLAIMED", "FLOAT64", "GRID", "HIDDEN", "RELATED", "SMOKE"]


def _named(*cases: Case) -> Mapping[str, Case]:
    named = {case.name: case for case in cases}
    assert len(named) == len(cases), "two cases have one name"
    return MappingProxyType(named)


def _out_only(name: str) -> Case:
    """Return a case of the grid that asks for out alone, as inference does."""
    case = CASES[name]
    return replace(case, name=f"{name}-out", sizes={**case.sizes, "lse": False})


def _recorded() -> Iterator[Case]:
    """Yield cases of masks with programs, of blocks that some kernels take them by alone."""
    bfloat16: dict[str, Any] = {"dtype": torch.bfloat16, "kv_heads": 2}
    tall = {"dtype": torch.float16, "block_size": (256, 128)}
    yield Case("mask-program-window", {"q_length": 300, **bfloat16}, "window", recorded=True)
    yield Case(
        "mask-program-documents",
        {"q_length": 290, "kv_length": 300, **tall},
        "documents",
        recorded=True,
    )
    yield Case(
        "mask-program-per_head-alibi",
        {"q_length": 260, "captured_grad": False, **bfloat16},
        "per_head",
        "alibi",
        recorded=True,
    )
    yield Case("mask-program-small-blocks", {"block_size": (16, 24)}, "documents", recorded=True)


GRID: Final[Mapping[str, Case]] = MappingProxyType(
    {
        **CASES,
        **_named(
            _out_only("causal"),
            _out_only("score-relative_bias"),
            _out_only("grouped-decoding"),
            Case("grouped-7-of-1", {"q_heads": 7, "kv_heads": 1}, "window"),
            Case("batch-9", {"batch": 9, "q_length": 17}, "causal"),
            Case("head_dim-192-value_dim-128", {"head_dim": 192, "value_dim": 128}, "causal"),
            Case("large-inputs", {"q_length": 90, "scale": 40.0}, "causal"),
            Case(
                "bfloat16-grouped-random",
                {"dtype": torch.bfloat16, "kv_heads": 2, "q_length": 150},
                "random",
            ),
            *_recorded(),
        ),
    }
)
"""Every kind of call: what an implementation accepts of it has to be right."""

_SMOKE: Final = (
    "plain",
    "causal",
    "bfloat16-causal",
    "float16-window-alibi",
    "float64-causal",
    "head_dim-17",
    "value_dim-16",
    "lengths-1-257",
    "lengths-129-129-causal",
    "grouped-2",
    "grouped-1",
    "grouped-decoding",
    "bfloat16-grouped-alibi",
    "bfloat16-grouped-softcap",
    "grouped-6-of-3",
    "mask-documents-small-blocks",
    "mask-empty_rows",
    "mask-per_batch_and_head-small-blocks",
    "score-gated_alibi",
    "score-relative_bias",
    "layout-transposed",
    "layout-strided-window",
    "max_scores",
    "causal-out",
)
SMOKE: Final[frozenset[str]] = frozenset(_SMOKE)
"""Names in GRID for a quick look at everything."""
assert set(_SMOKE) <= set(GRID)

HIDDEN: Final = _named(
    Case("causal-more-keys", {"q_length": 150, "kv_length": 160, "kv_heads": 2}, "causal"),
    Case("window-more-keys", {"q_length": 60, "kv_length": 160, "kv_heads": 2}, "window"),
    Case("empty_rows", {"q_length": 140, "block_size": (32, 16)}, "empty_rows"),
    Case("nothing", {"q_length": 40, "kv_length": 70}, "nothing"),
    Case(
        "bfloat16-documents",
        {"dtype": torch.bfloat16, "q_length": 90, "kv_length": 130, "block_size": (16, 16)},
        "documents",
    ),
    Case("float16-causal", {"dtype": torch.float16, "q_length": 20, "kv_length": 300}, "causal"),
    Case("decoding", {"q_length": 1, "kv_length": 300, "kv_heads": 1}, "causal"),
    Case("alibi", {"q_length": 70, "kv_length": 90}, "window", "alibi"),
    Case("window-out", {"q_length": 60, "kv_length": 160, "lse": False}, "window"),
)
"""Calls with keys that some row, or no row, sees."""


def _claimed() -> Mapping[str, Case]:
    bfloat16: dict[str, Any] = {"dtype": torch.bfloat16}
    return _named(
        Case("plain", {"batch": 3}),
        Case("causal", {"batch": 3, "q_length": 129}, "causal"),
        Case("window-alibi", {"batch": 3, "q_length": 200, "kv_heads": 2}, "window", "alibi"),
        Case("relative_bias", {"batch": 3, "q_length": 150}, "causal", "relative_bias"),
        Case("decoding", {"batch": 5, "q_length": 1, "kv_length": 300, "kv_heads": 1}),
        Case("decoding-long", {"batch": 3, "q_length": 1, "kv_length": 4000, "kv_heads": 2}),
        Case("long", {"batch": 3, "q_heads": 2, "kv_heads": 1, "q_length": 900}, "causal"),
        Case("few-rows", {"batch": 3, "q_length": 5, "kv_length": 1500}, "random"),
        Case("bfloat16-causal", {"batch": 3, "q_length": 300, **bfloat16}, "causal"),
        Case("bfloat16-decoding", {"batch": 4, "q_length": 1, "kv_length": 700, **bfloat16}),
        Case("float16-window", {"batch": 3, "dtype": torch.float16, "q_length": 150}, "window"),
        Case("float64", {"batch": 3, "dtype": torch.float64}, "window"),
        Case("inference", {"batch": 3, "q_length": 129, "lse": False}, "window"),
    )


CLAIMED: Final = _claimed()
"""Calls of several batch entries whose masks and score_mods are the same in all of them."""

RELATED: Final = _named(
    Case("plain", {"q_length": 70, "kv_length": 90, "kv_heads": 2}),
    Case("causal", {"q_length": 129}, "causal"),
    Case("window", {"q_length": 150, "kv_heads": 2, "block_size": (32, 24)}, "window"),
    Case("random", {"q_length": 100, "kv_length": 150, "block_size": (16, 16)}, "random"),
    Case("empty_rows", {"q_length": 80, "kv_heads": 1, "block_size": (16, 32)}, "empty_rows"),
    Case("everything", {"q_length": 90, "block_size": (32, 32)}, "everything"),
    Case("decoding", {"q_length": 1, "kv_length": 700, "kv_heads": 2}),
    Case("bfloat16-causal", {"q_length": 200, "dtype": torch.bfloat16}, "causal"),
    Case("float16-window", {"q_length": 130, "dtype": torch.float16}, "window"),
    Case(
        "inference",
        {"q_length": 150, "kv_heads": 2, "block_size": (32, 24), "lse": False},
        "window",
    ),
)
"""Calls that can be put in another way, with the same result."""

_TINY: Final[dict[str, Any]] = {
    "dtype": torch.float64,
    "q_heads": 2,
    "kv_heads": 1,
    "q_length": 6,
    "kv_length": 7,
    "head_dim": 3,
    "value_dim": 2,
    "block_size": (4, 3),
}
_SQUARE: Final[dict[str, Any]] = {**_TINY, "head_dim": 3, "value_dim": 3, "kv_heads": 2}
FLOAT64: Final = _named(
    Case("plain", _TINY),
    Case("equal-sizes", _SQUARE),
    Case("equal-sizes-causal", _SQUARE, "causal"),
    Case("window", _TINY, "window"),
    Case("documents", _TINY, "documents"),
    Case("per_head", {**_TINY, "kv_heads": 2}, "per_head"),
    Case("softcap", _TINY, "causal", "softcap"),
    Case("gate", _TINY, "window", "gate"),
    Case("relative_bias", {**_TINY, "q_length": 5}, "", "relative_bias"),
)
"""Calls that are small enough for gradients by differences."""
