"""The smallest call that still breaks a law."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

import torch

from torchyard_attention.cases import Case
from torchyard_conformance._attention._rulers import key_of
from torchyard_conformance._outcome import NotSupported, Violated

__all__ = ["smallest"]

_DEFAULTS: Final[Mapping[str, int]] = {"batch": 2, "q_heads": 4, "q_length": 64, "head_dim": 32}
_TRIES: Final = 150


def smallest(
    check: Callable[[Case], object], case: Case, broken: Violated, *, seconds: float = 20.0
) -> tuple[Case, Violated]:
    """Shrink a case while a law stays broken.

    Args:
        check: raises Violated where the law is broken.
        case: one that breaks it.
        broken: how.
        seconds: when to stop trying.

    Returns:
        The smallest case found, and how it breaks the law.
    """
    end = time.monotonic() + seconds
    tried = {key_of(case)}
    case = _whole(case)
    shrinks = True
    while shrinks:
        shrinks = False
        for candidate in _smaller(case):
            if len(tried) >= _TRIES or time.monotonic() > end:
                return case, broken
            key = key_of(candidate)
            if key in tried:
                continue
            tried.add(key)
            found = _broken(check, candidate)
            if found is not None:
                case, broken, shrinks = candidate, found, True
                break
    return case, broken


def _broken(check: Callable[[Case], object], case: Case) -> Violated | None:
    try:
        check(case)
    except Violated as found:
        return found
    except NotSupported:
        return None
    except Exception:
        # Not every smaller case can be built; such a one proves nothing.
        return None
    return None


def _whole(case: Case) -> Case:
    """Return the case with every size written out."""
    sizes: dict[str, Any] = {**_DEFAULTS, **case.sizes}
    sizes.setdefault("kv_heads", sizes["q_heads"])
    sizes.setdefault("kv_length", sizes["q_length"])
    sizes.setdefault("value_dim", sizes["head_dim"])
    return replace(case, name="smallest", sizes=sizes)


def _smaller(case: Case) -> Iterator[Case]:
    """Yield simpler cases, the greatest steps first."""
    for changes in ({"layout": "contiguous"}, {"score_mod": ""}, {"mask": ""}):
        yield replace(case, **changes)  # type: ignore[arg-type]
    sizes = case.sizes
    for name, plain in (("max_scores", False), ("scale", None), ("separate_full_blocks", True)):
        if name in sizes:
            rest = {key: value for key, value in sizes.items() if key != name}
            yield replace(case, sizes={**rest, name: plain} if name == "max_scores" else rest)
    if sizes.get("dtype", torch.float32) != torch.float32:
        yield replace(case, sizes={**sizes, "dtype": torch.float32})
    for q_heads, kv_heads in _heads(sizes["q_heads"], sizes["kv_heads"]):
        yield replace(case, sizes={**sizes, "q_heads": q_heads, "kv_heads": kv_heads})
    for names in (("q_length", "kv_length"), ("head_dim", "value_dim")):
        for divisor in (8, 2):
            both = {name: max(1, sizes[name] // divisor) for name in names}
            yield replace(case, sizes={**sizes, **both})
    for name in ("batch", "q_length", "kv_length", "head_dim", "value_dim"):
        for size in _sizes(sizes[name]):
            yield replace(case, sizes={**sizes, name: size})


def _sizes(size: int) -> Iterator[int]:
    for smaller in (1, 2, size // 4, size // 2, size * 3 // 4, size - 8, size - 1):
        if 0 < smaller < size:
            yield smaller


def _heads(q_heads: int, kv_heads: int) -> Iterator[tuple[int, int]]:
    for fewer in range(1, kv_heads + 1):
        for group in range(1, q_heads // kv_heads + 1):
            if (fewer * group, fewer) != (q_heads, kv_heads):
                yield fewer * group, fewer
