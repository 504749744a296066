"""What new functions cost, in a process of its own.

``python -m benchmarks.attention.cold_probe first NUMBER`` times the process's first call,
with a score_mod or a mask_mod; ``functions`` the first and the later calls with each of some
functions, after another call; ``many COUNT`` as many calls, each with a new function, length and
captured tensors; ``stock COUNT`` the same with torch's compiled flex_attention.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor
from torch.nn.attention import flex_attention as stock

from torchyard_attention import create_block_mask, explain, flex_attention

__all__: list[str] = []

_Inputs = tuple[Tensor, Tensor, Tensor]
_HEADS: Final = 8
_SLOPES: Final = torch.rand(_HEADS)
_BIAS: Final = torch.randn(512, 512)
_IDS: Final = torch.arange(512) // 60

_SCORES: Final[dict[str, Callable[..., Any]]] = {
    "alibi": lambda s, b, h, q, k: s + _SLOPES[h] * (k - q),
    "softcap": lambda s, b, h, q, k: 20 * torch.tanh(s / 20),
    "bias[q,k]": lambda s, b, h, q, k: s + _BIAS[q, k],
    "relative bias": lambda s, b, h, q, k: s + _BIAS[0][(q - k).abs()],
    "documents": lambda s, b, h, q, k: torch.where(_IDS[q] == _IDS[k], s, -torch.inf),
    "twenty steps": lambda s, b, h, q, k: _chain(s, q, k),
}
_MASKS: Final[dict[str, Callable[..., Any]]] = {
    "causal": lambda b, h, q, k: q >= k,
    "window": lambda b, h, q, k: (q >= k) & (q - k < 77),
    "documents": lambda b, h, q, k: _IDS[q] == _IDS[k],
    "dilated": lambda b, h, q, k: (q - k) % 3 == 0,
}


def _chain(score: Any, q_idx: Any, kv_idx: Any) -> Any:
    for step in range(10):
        score = score * (1 + 0.01 * step) + (q_idx - kv_idx) * (0.001 * step)
    return score


def _inputs(length: int) -> _Inputs:
    query, key, value = torch.randn(3, 1, _HEADS, length, 64).to(torch.bfloat16)
    return query, key, value


def _calls() -> dict[str, Callable[[_Inputs], Any]]:
    def scored(score_mod: Callable[..., Any]) -> Callable[[_Inputs], Any]:
        return lambda given: flex_attention(*given, score_mod=score_mod)

    def masked(mask_mod: Callable[..., Any]) -> Callable[[_Inputs], Any]:
        def call(given: _Inputs) -> Any:
            length = given[0].shape[2]
            mask = create_block_mask(mask_mod, None, None, length, length, device="cpu")
            return flex_attention(*given, block_mask=mask)

        return call

    return {
        **{f"score_mod {name}": scored(mod) for name, mod in _SCORES.items()},
        **{f"mask_mod {name}": masked(mod) for name, mod in _MASKS.items()},
    }


def _seconds(call: Callable[[_Inputs], Any], given: _Inputs) -> float:
    start = time.perf_counter()
    call(given)
    return time.perf_counter() - start


def _timed(call: Callable[[_Inputs], Any], given: _Inputs) -> dict[str, float]:
    first = _seconds(call, given)
    later = statistics.median(_seconds(call, given) for _ in range(15))
    return {"first": first, "later": later}


def _first(number: int) -> dict[str, Any]:
    given = _inputs(256)
    calls = {**_calls(), "unmodified": lambda given: flex_attention(*given)}
    name, call = list(calls.items())[number]
    return {"name": name, **_timed(call, given)}


def _functions() -> dict[str, Any]:
    given = _inputs(256)
    flex_attention(*given)
    found = {name: _timed(call, given) for name, call in _calls().items()}
    computed_by = {explain(*given, score_mod=mod).name for mod in _SCORES.values()}
    return {"calls": found, "computed_by": ", ".join(sorted(computed_by))}


def _resident() -> int:
    return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * 4096


def _new(number: int, length: int) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """Return a score_mod and a mask_mod unlike all others, over tensors of their own."""
    slopes, bias = torch.rand(_HEADS), torch.randn(length, length)
    ids = torch.arange(length) // (20 + number)

    def score_mod(score: Any, b: Any, h: Any, q: Any, k: Any) -> Any:
        if number % 2:
            score = score + bias[q, k]
        if number % 3:
            score = score + slopes[h] * (k - q)
        return score * (1.0 + number * 0.001)

    def mask_mod(b: Any, h: Any, q: Any, k: Any) -> Any:
        return (ids[q] == ids[k]) & (q - k < 50 + number)

    return score_mod, mask_mod


def _many(count: int) -> dict[str, Any]:
    flex_attention(*_inputs(256))
    found: dict[str, list[float]] = {"length": [], "first": [], "later": [], "plain": []}
    resident = []
    computed_by = set()
    for number in range(count):
        length = 130 + 3 * (number % 100)
        given = _inputs(length)
        score_mod, mask_mod = _new(number, length)
        start = time.perf_counter()
        mask = create_block_mask(mask_mod, None, None, length, length, device="cpu")
        flex_attention(*given, score_mod=score_mod, block_mask=mask)
        found["first"].append(time.perf_counter() - start)

        def again(given: _Inputs, mod: Any = score_mod, mask: Any = mask) -> Any:
            return flex_attention(*given, score_mod=mod, block_mask=mask)

        found["length"].append(length)
        found["later"].append(min(_seconds(again, given) for _ in range(3)))
        found["plain"].append(min(_seconds(lambda x: flex_attention(*x), given) for _ in range(3)))
        computed_by.add(explain(*given, score_mod=score_mod, block_mask=mask).name)
        resident.append(_resident())
    return {**found, "resident": resident, "computed_by": ", ".join(sorted(computed_by))}


def _stock(count: int) -> dict[str, Any]:
    compiled: Any = torch.compile(stock.flex_attention)
    found: dict[str, list[float]] = {"length": [], "first": [], "later": []}
    for number in range(count):
        length = 130 + 3 * number
        given = _inputs(length)
        score_mod, mask_mod = _new(number, length)
        start = time.perf_counter()
        mask = stock.create_block_mask(mask_mod, None, None, length, length, device="cpu")
        compiled(*given, score_mod=score_mod, block_mask=mask)
        found["first"].append(time.perf_counter() - start)

        def again(given: _Inputs, mod: Any = score_mod, mask: Any = mask) -> Any:
            return compiled(*given, score_mod=mod, block_mask=mask)

        found["length"].append(length)
        found["later"].append(min(_seconds(again, given) for _ in range(3)))
    return found


if __name__ == "__main__":
    _kind, *_numbers = sys.argv[1:]
    _probes: dict[str, Callable[..., dict[str, Any]]] = {
        "first": _first,
        "functions": _functions,
        "many": _many,
        "stock": _stock,
    }
    print(json.dumps(_probes[_kind](*map(int, _numbers))))
