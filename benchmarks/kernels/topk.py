"""The first k of each row: torchyard_kernels.topk beside torch's best way; the cost of a call."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any, Final

import torch
from torch import Tensor

from benchmarks.measuring.findings import Finding, at_least
from benchmarks.measuring.limits import Probe
from benchmarks.measuring.measure import WrongResultError
from benchmarks.overhead.calls import around
from torchyard import registry
from torchyard_kernels import topk
from torchyard_kernels.topk.contract import TOPK, TopKRequest

__all__ = ["measure_topk"]

_SHAPES: Final = ((64, 4096), (64, 131072), (4, 1 << 20), (32, 50257))
_LARGE: Final = ((64, 131072), (4, 1 << 20))
_K: Final = (8, 64, 1024)
# Beyond any cache, so that the share of the memory's bandwidth means something.
_FROM_MEMORY: Final = (64, 131072)
# Two probes of the memory's bandwidth that differ by more do not measure what was between them.
_AGREE: Final = 1.1
_TINY: Final = (4, 16)


def measure_topk(*, quick: bool, progress: Callable[[str], None]) -> list[Finding]:
    """Measure every shape, dtype and order, and the overhead of a call.

    Args:
        quick: few rounds of the small shape alone.
        progress: receives the name of each step.

    Raises:
        WrongResultError: a selection of ours is wrong; nothing is timed then.
    """
    findings: list[Finding] = []
    with Probe() as probe:
        for shape in _SHAPES[:1] if quick else _SHAPES:
            for dtype in (torch.float32, torch.bfloat16):
                for order in ("random", "rising"):
                    progress(f"{list(shape)} {_name(dtype)} {order}")
                    x = _rows(shape, dtype, order)
                    for k in _K:
                        findings += _compared(x, k, order, 3 if quick else 9, probe)
    progress("a tiny call")
    findings += _overhead(quick)
    return findings


def _rows(shape: tuple[int, int], dtype: torch.dtype, order: str) -> Tensor:
    x = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    # Rising rows are the worst there are: each element is better than all before it.
    return (x.sort(-1).values if order == "rising" else x).to(dtype)


def _compared(x: Tensor, k: int, order: str, rounds: int, probe: Probe) -> Iterator[Finding]:
    case = f"{list(x.shape)} {_name(x.dtype)} k={k} {order}"
    _judge(case, x, k)
    ways: dict[str, Callable[[], Any]] = {
        "topk": lambda: torch.topk(x, k),
        "sort": lambda: x.sort(-1, descending=True)[0][:, :k],
    }
    # Which of torch's ways is the best depends on the order; both may compete.
    first = {name: _seconds(way) for name, way in ways.items()}
    best = [name for name in ways if first[name] <= 2 * min(first.values())]
    before = _bandwidth(x, order, probe)
    ours: list[float] = []
    ratios: list[float] = []
    for _ in range(rounds):
        ours.append(_seconds(lambda: topk(x, k)))
        ratios.append(min(_seconds(ways[name]) for name in best) / ours[-1])
    after = _bandwidth(x, order, probe)
    request = TopKRequest("cpu", _name(x.dtype), x.shape[0], x.shape[1], k)
    who = registry().decide(TOPK, request).name or "none"
    asked = 1.0 if order == "rising" else 8.0 if k == 1024 and x.shape in _LARGE else 4.0
    yield at_least(case, who, "times torch's best", statistics.median(ratios), asked)
    if before and after and max(before, after) <= _AGREE * min(before, after):
        rate = x.numel() * x.element_size() / statistics.median(ours)
        share = rate / ((before + after) / 2)
        yield Finding(case, who, "share of the memory's read bandwidth", share)


def _judge(case: str, x: Tensor, k: int) -> None:
    found = topk(x, k)
    whole = torch.sort(x, dim=-1, descending=True, stable=True)
    right = whole.indices[:, :k]
    if not torch.equal(found.indices, right) or not torch.equal(found.values, x.gather(-1, right)):
        wrong = int((found.indices != right).sum())
        raise WrongResultError(f"topk, {case}: {wrong} indices are not the stable sort's")


def _bandwidth(x: Tensor, order: str, probe: Probe) -> float | None:
    if order != "random" or x.shape != _FROM_MEMORY:
        return None
    return probe.read_bytes(torch.get_num_threads())


def _overhead(quick: bool) -> Iterator[Finding]:
    """Yield what a call costs beside its arithmetic, which a kernel of the same size bounds."""
    from torchyard_cpu import _native

    x = torch.randn(_TINY)
    values, indices = torch.topk(x, 3)
    kernel = _native.select_topk("float32", _native.cpu_features())
    assert kernel is not None
    places = (x.data_ptr(), *_TINY, _TINY[1], 0, 0, 0, 3, 1, 0)
    case = f"{list(_TINY)} float32 k=3"
    yield from around(
        case,
        "the kernel",
        lambda: topk(x, 3),
        lambda: _native.topk(kernel, *places, values.data_ptr(), indices.data_ptr(), 1),
        quick=quick,
    )


def _seconds(call: Callable[[], Any]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def _name(dtype: torch.dtype) -> str:
    return str(dtype)[6:]
