"""What a call of each op costs around its kernel, on so few numbers that little else counts."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from typing import Any, Final, NamedTuple
from unittest.mock import patch

import torch
from torch import Tensor
from torch.nn import functional as F

import torchyard_kernels as kernels
from benchmarks.measuring.findings import Finding, at_most
from benchmarks.measuring.measure import WrongResultError
from torchyard import use
from torchyard.dispatch import decision_cache
from torchyard_attention import flex_attention

__all__ = ["around", "measure_calls"]

_OURS: Final = "torchyard"
# Microseconds that a call may cost beside its arithmetic.
_TARGET: Final = 3.0
# And how many times the stock op's time a whole call may take.
_OF_STOCK: Final = 1.5
# So few at a time that both are timed at one speed of the processor, which changes.
_AT_A_TIME: Final = 10
_TURNS: Final = 1500
# And so often again: it may be slow for a tenth of a second.
_PASSES: Final = 3
_NATIVE: Final = ("linear_forward", "topk", "pointwise")
_DTYPES: Final = (torch.float32, torch.bfloat16, torch.float16)


class _Spent(NamedTuple):
    """Microseconds per call, turn by turn."""

    ours: list[float]
    bare: list[float]


def around(
    case: str, whose: str, ours: Callable[[], Any], bare: Callable[[], Any], *, quick: bool
) -> Iterator[Finding]:
    """Yield what a call costs around its kernel, and in all, alternately.

    Args:
        case: its name.
        whose: the name of what computes it.
        ours: the call.
        bare: the kernel alone.
        quick: few turns, whose figures mean nothing.
    """
    spent = _Spent([], [])
    _take_turns(ours, bare, spent, 10 if quick else _TURNS)
    yield from _told(case, whose, spent)


def _take_turns(
    ours: Callable[[], Any], bare: Callable[[], Any], spent: _Spent, turns: int
) -> None:
    for _ in range(turns):
        for call, times in ((ours, spent.ours), (bare, spent.bare)):
            call()
            start = time.perf_counter()
            for _ in range(_AT_A_TIME):
                call()
            times.append((time.perf_counter() - start) / _AT_A_TIME * 1e6)


def _told(case: str, whose: str, spent: _Spent) -> Iterator[Finding]:
    beside = statistics.median(ours - bare for ours, bare in zip(*spent, strict=True))
    yield at_most(case, _OURS, f"us around {whose}", beside, _TARGET)
    yield Finding(case, _OURS, "us per call", statistics.median(spent.ours))


@torch.no_grad()
def measure_calls(*, quick: bool, progress: Callable[[str], None]) -> list[Finding]:
    """Measure every op with a kernel of its own; recurrent layers are measured by their suite.

    Args:
        quick: few turns.
        progress: receives the name of each step.
    """
    cases = [(case, call, _alone(case, call), _Spent([], [])) for case, call in _calls()]
    for done in range(_PASSES):
        progress(f"{done + 1} of {_PASSES} times {len(cases)} calls")
        for _, call, alone, spent in cases:
            # Decides, where nothing has.
            call()
            _take_turns(call, alone, spent, 4 if quick else _TURNS // _PASSES)
    found = [found for case, _, _, spent in cases for found in _told(case, "the kernel", spent)]
    return [*found, *_beside_stock(10 if quick else _TURNS)]


def _beside_stock(turns: int) -> Iterator[Finding]:
    """Yield how many times as long a whole call takes as the stock op's; the best of both."""
    for case, (ours, stock) in _stock().items():
        best = [math.inf, math.inf]
        for _ in range(turns):
            for place, call in enumerate((ours, stock)):
                call()
                start = time.perf_counter()
                for _ in range(_AT_A_TIME):
                    call()
                best[place] = min(best[place], time.perf_counter() - start)
        yield at_most(case, _OURS, "times the stock op", best[0] / best[1], _OF_STOCK)


def _stock() -> dict[str, tuple[Callable[[], Any], Callable[[], Any]]]:
    query, rows = torch.randn(1, 1, 1, 8), torch.randn(4, 16)
    x, weight = torch.randn(1, 8), torch.randn(8, 8)
    theirs = torch.nn.GRU(8, 8)
    ours = kernels.nn.from_torch(theirs)
    given = torch.randn(1, 1, 8), torch.zeros(1, 1, 8)
    attend = F.scaled_dot_product_attention
    return {
        "attention": (
            partial(flex_attention, query, query, query),
            partial(attend, query, query, query),
        ),
        "linear": (partial(kernels.linear, x, weight), partial(F.linear, x, weight)),
        "topk": (partial(kernels.topk, rows, 3), partial(torch.topk, rows, 3)),
        "GRU": (partial(ours, *given), partial(theirs, *given)),
    }


def _calls() -> Iterator[tuple[str, Callable[[], Any]]]:
    for dtype in _DTYPES:
        name = str(dtype)[6:]
        torch.manual_seed(0)
        x, weight = torch.randn(1, 64).to(dtype), torch.randn(64, 64).to(dtype)
        bias, scale = torch.randn(64).to(dtype), torch.rand(64).to(dtype)
        packed = kernels.PackedWeight(weight)
        batches = torch.randn(2, 4, 16).to(dtype), torch.randn(2, 16, 8).to(dtype)
        yield f"linear {name}", partial(kernels.linear, x, weight, bias)
        yield f"linear {name} packed", partial(kernels.linear, x, packed, bias)
        for what, given in _functions(scale).items():
            yield f"linear {name} packed, {what}", partial(kernels.linear, x, packed, **given)
        yield f"matmul {name}", partial(kernels.matmul, x, weight)
        yield f"matmul {name} of batches", partial(kernels.matmul, *batches)
        yield f"bmm {name}", partial(kernels.bmm, *batches)
        rows = torch.randn(4, 16).to(dtype)
        yield f"topk {name}", partial(kernels.topk, rows, 3)
        yield f"kthvalue {name}", partial(kernels.kthvalue, rows, 3)
        yield f"masked_topk {name}", partial(kernels.masked_topk, rows, rows > 0, 3)
        flat, bounds = rows.flatten(), torch.tensor([0, 20, 64])
        yield f"segmented_topk {name}", partial(kernels.segmented_topk, flat, bounds, 3)
        lists = [torch.randn(8).to(dtype) for _ in range(2)]
        add = lambda a, b: a * b + 1  # noqa: E731
        yield f"foreach_map {name}", partial(kernels.foreach_map, add, lists, lists)


def _functions(scale: Tensor) -> dict[str, dict[str, Any]]:
    return {
        "silu": {"epilogue": F.silu},
        "SwiGLU": {"epilogue": lambda gate, up: F.silu(gate) * up},
        "scale and GELU": {"prologue": lambda x: x * scale, "epilogue": lambda y: F.gelu(y)},
    }


def _alone(case: str, call: Callable[[], Any]) -> Callable[[], Any]:
    """Return what runs a call's kernel again, at the same addresses."""
    from torchyard_cpu import _native

    found: list[tuple[Callable[..., Any], tuple[Any, ...]]] = []

    def noted(kernel: Callable[..., Any], *arguments: Any) -> Any:
        found.append((kernel, arguments))
        return kernel(*arguments)

    with ExitStack() as stack:
        stack.enter_context(use(linear="cpu.native", topk="cpu.native", pointwise="cpu.native"))
        # Decided again, a call goes through Python.
        decision_cache().clear()
        for name in _NATIVE:
            kernel = getattr(_native, name)
            stack.enter_context(patch.object(_native, name, partial(noted, kernel)))
        kept = call()
    if len(found) != 1:
        raise WrongResultError(f"{case}: expected a call of one kernel, got {len(found)}")
    ((kernel, arguments),) = found

    def run() -> Any:
        kernel(*arguments)
        return kept

    return run
