"""Calls of the paged cache that are right."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import torch
from torch import Tensor

from tests.fuzz.harness import call_of
from tests.fuzz.kinds import OTHER, REFUSED, TEXT, Kind, integer, number, optional, tensor
from torchyard_attention import PagedKVCache, PagedStep

__all__ = ["CALLS"]

_CACHE: Final = "torchyard_attention.PagedKVCache"
_STEP: Final = "torchyard_attention.PagedStep"
# Above, memory and not the kind of the argument is what a call is refused for.
_MOST: Final = 1 << 20


def _x(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0))


def _cache() -> PagedKVCache:
    cache = PagedKVCache(8, 4, kv_heads=2, head_dim=8)
    cache.open()
    cache.append(0, _x(3, 2, 8), _x(3, 2, 8), counts=3)
    return cache


def _on(name: str) -> Callable[..., Any]:
    return lambda **given: getattr(_cache(), name)(**given)


def _step() -> PagedStep:
    return _cache().extend(0, 1)


def _on_step(name: str) -> Callable[..., Any]:
    def run(**given: Any) -> Any:
        step = _step()
        if name != "write":
            step.write(_x(1, 2, 8), _x(1, 2, 8))
        return getattr(step, name)(**given)

    return run


def _attended() -> dict[str, Any]:
    return {
        "query": _x(1, 2, 8),
        "layer": 0,
        "score_mod": None,
        "mask_mod": None,
        "causal": True,
        "return_aux": None,
        "implementation": None,
    }


_SEQUENCE: Final = integer(0, 0)
_SAYS: Final = {"sequence": "sequences?"}
# [B, H, S, D] is another form of [T, H, D].
_NEW: Final = tensor("another dimension")
_ATTEND: Final[dict[str, Any]] = {
    "query": tensor(),
    "layer": integer(0, 0),
    "score_mod": Kind(lambda v: v if v is None else REFUSED),
    "mask_mod": Kind(lambda v: v if v is None else REFUSED),
}

CALLS: Final = (
    call_of(
        _CACHE,
        {
            "pages": 8,
            "page_size": 4,
            "kv_heads": 2,
            "head_dim": 8,
            "value_dim": None,
            "layers": 1,
            "dtype": torch.float32,
            "device": "cpu",
        },
        lambda **given: PagedKVCache(**given).memory,
        **dict[str, Any](
            {
                name: integer(1, _MOST)
                for name in ("pages", "page_size", "kv_heads", "head_dim", "layers")
            }
        ),
        value_dim=optional(integer(1, _MOST)),
        dtype=Kind(lambda v: v if v is torch.float32 else REFUSED),
        device=OTHER,
    ),
    call_of(
        f"{_CACHE}.append",
        lambda: {"sequences": 0, "key": _x(2, 2, 8), "value": _x(2, 2, 8), "counts": 2},
        _on("append"),
        key=_NEW,
        value=_NEW,
        sequences=_SEQUENCE,
        counts=optional(integer(2, 2)),
    ),
    *(
        call_of(
            f"{_CACHE}.{name}",
            {"sequences": 0, "counts": 1},
            _on(name),
            sequences=_SEQUENCE,
            counts=integer(0, 3),
        )
        for name in ("extend", "step")
    ),
    call_of(
        f"{_CACHE}.attention",
        lambda: {"query": _x(1, 2, 8), "sequences": 0, "counts": 1, "scale": None},
        _on("attention"),
        sequences=_SEQUENCE,
        counts=optional(integer(1, 1)),
        scale=optional(number()),
    ),
    *(
        call_of(f"{_CACHE}.{name}", {"sequence": 0}, _on(name), sequence=_SEQUENCE, says=_SAYS)
        for name in ("fork", "close", "length")
    ),
    call_of(
        f"{_CACHE}.keys_and_values",
        {"sequence": 0, "layer": 0},
        _on("keys_and_values"),
        sequence=_SEQUENCE,
        says=_SAYS,
        layer=integer(-1, 0),
    ),
    call_of(
        f"{_CACHE}.truncate",
        {"sequence": 0, "length": 2},
        _on("truncate"),
        sequence=_SEQUENCE,
        says=_SAYS,
        length=integer(0, 3),
    ),
    call_of(
        f"{_STEP}.write",
        lambda: {"key": _x(1, 2, 8), "value": _x(1, 2, 8), "layer": 0},
        _on_step("write"),
        layer=integer(-1, 0),
    ),
    call_of(
        f"{_STEP}.attention",
        lambda: {**_attended(), "scale": None, "kernel_options": None},
        _on_step("attention"),
        **_ATTEND,
        scale=optional(number()),
        kernel_options=Kind(
            # torch's own options are without effect.
            lambda v: v if v is None or isinstance(v, dict) else REFUSED,
            free=True,
        ),
        calls=("score_mod", "mask_mod"),
    ),
    call_of(
        f"{_STEP}.explain",
        _attended,
        _on_step("explain"),
        **_ATTEND,
        # The decision reports what is not supported.
        implementation=optional(TEXT),
        calls=("score_mod", "mask_mod"),
    ),
)
