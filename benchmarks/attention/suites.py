"""The suites of cases that are timed side by side."""

from __future__ import annotations

from typing import Final

import torch

from benchmarks.measuring import modifiers
from benchmarks.measuring.cases import Bar, Case, Part, Rival

__all__ = ["SUITES"]

_LOW: Final = torch.bfloat16
_HALF: Final = torch.float16
_SINGLE: Final = torch.float32
_LENGTH: Final = 2048


def _name(dtype: torch.dtype) -> str:
    return str(dtype)[6:]


def _square(length: int, head_dim: int = 64, batch: int = 1) -> tuple[int, int, int, int, int, int]:
    return (batch, 8, 8, length, length, head_dim)


def _forward() -> tuple[Case, ...]:
    times = {
        (_LOW, "full"): 2.2,
        (_LOW, "causal"): 2.2,
        (_HALF, "full"): 1.8,
        (_HALF, "causal"): 1.8,
        (_SINGLE, "full"): 1.15,
        (_SINGLE, "causal"): 1.3,
    }
    shares = {(_LOW, "causal", 64): 0.75, (_LOW, "causal", 128): 0.8}
    cases = []
    for (dtype, mask), at_least in times.items():
        for head_dim in (64, 128):
            bars = [Bar(Rival.SDPA, at_least)]
            if (dtype, mask, head_dim) in shares:
                bars.append(Bar(Rival.LIMIT, shares[dtype, mask, head_dim]))
            cases.append(
                Case(
                    f"{mask} d{head_dim} {_name(dtype)}",
                    _square(_LENGTH, head_dim),
                    dtype,
                    mask_mod=modifiers.causal if mask == "causal" else None,
                    bars=tuple(bars),
                    compiled_flex=False,
                )
            )
    return tuple(cases)


def _modified() -> tuple[Case, ...]:
    changes = {
        "causal mask": (None, modifiers.causal),
        "window 256": (None, modifiers.window),
        "documents": (None, modifiers.documents),
        "alibi": (modifiers.alibi, None),
        "softcap": (modifiers.softcap, None),
        "relative bias": (modifiers.relative_bias, None),
        "bias[q,k]": (modifiers.bias, None),
    }
    return tuple(
        Case(
            f"{name} {_name(dtype)}",
            _square(_LENGTH),
            dtype,
            score=score,
            mask_mod=mask_mod,
            bars=(Bar(Rival.FLEX, at_least),),
        )
        for dtype, at_least in ((_LOW, 4.5), (_SINGLE, 1.8))
        for name, (score, mask_mod) in changes.items()
    )


def _backward() -> tuple[Case, ...]:
    cases = []
    for dtype, at_least in ((_LOW, 1.8), (_SINGLE, 1.3)):
        cases += [
            Case(
                f"backward causal d{head_dim} {_name(dtype)}",
                _square(_LENGTH, head_dim),
                dtype,
                mask_mod=modifiers.causal,
                part=Part.BACKWARD,
                bars=(Bar(Rival.SDPA, at_least),),
            )
            for head_dim in (64, 128)
        ]
        cases += [
            Case(
                f"backward causal {name} {_name(dtype)}",
                _square(_LENGTH),
                dtype,
                score=score,
                mask_mod=modifiers.causal,
                parameters=parameters,
                part=Part.BACKWARD,
            )
            for name, score, parameters in (
                ("alibi", modifiers.alibi, ()),
                ("learnable bias", modifiers.relative_bias, (modifiers.TABLE,)),
            )
        ]
    return tuple(cases)


def _decode() -> tuple[Case, ...]:
    return tuple(
        Case(
            f"decode {keys} batch {batch} {_name(dtype)}",
            (batch, 32, 8, 1, keys, 128),
            dtype,
            bars=(
                Bar(Rival.LIMIT, 0.85),
                *((Bar(Rival.SDPA, 4.0),) if dtype == _LOW else ()),
            ),
            compiled_flex=False,
        )
        for dtype in (_LOW, _SINGLE)
        for keys in (4096, 32768)
        for batch in (1, 8)
    )


def _short() -> tuple[Case, ...]:
    return tuple(
        Case(
            f"short {mask} {length} batch {batch} {_name(dtype)}",
            _square(length, batch=batch),
            dtype,
            mask_mod=modifiers.causal if mask == "causal" else None,
            # 5 % is what two runs of one contestant differ by.
            bars=(Bar(Rival.SDPA, 0.95),),
            compiled_flex=False,
        )
        for dtype in (_LOW, _SINGLE)
        for mask in ("full", "causal")
        for batch in (1, 4)
        for length in (1, 2, 4, 8, 16, 32, 64, 128, 256)
    )


_OTHERS: Final = (
    Case("grouped causal", (1, 8, 2, 2048, 2048, 64), _LOW, mask_mod=modifiers.causal),
    Case("distance", _square(1024), _SINGLE, score=modifiers.distance),
    Case("decoding batch 4", (4, 32, 8, 1, 4096, 128), _LOW),
    Case("decoding batch 4 float16", (4, 32, 8, 1, 4096, 128), _HALF),
    Case("training", _square(1024), _SINGLE, mask_mod=modifiers.causal, part=Part.BOTH),
    Case("training bfloat16", _square(2048), _LOW, mask_mod=modifiers.causal, part=Part.BOTH),
    Case("training float16", _square(2048), _HALF, mask_mod=modifiers.causal, part=Part.BOTH),
    Case(
        "training learnable alibi",
        _square(512),
        _SINGLE,
        score=modifiers.learnable_alibi,
        mask_mod=modifiers.causal,
        parameters=(modifiers.SLOPES,),
        part=Part.BOTH,
    ),
)

SUITES: Final[dict[str, tuple[Case, ...]]] = {
    "forward": _forward(),
    "modified": _modified(),
    "backward": _backward(),
    "decode": _decode(),
    "short": _short(),
    "others": _OTHERS,
}
