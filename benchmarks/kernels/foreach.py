"""Pointwise functions over lists of tensors, beside torch's foreach, fused and single forms."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from functools import partial
from typing import Any, Final

import torch
from torch import Tensor

from benchmarks.measuring.findings import Finding, at_least
from benchmarks.measuring.measure import WrongResultError
from torchyard_kernels import foreach_map_, optim

__all__ = ["measure_foreach"]

OURS: Final = "torchyard"
# Torch's fused form does the same; elsewhere foreach is torch's best.
_FUSED_SHARE: Final = 1 / 1.1
_FOREACH_TIMES: Final = 3.0
_COUNT: Final = 200
# Elements of each tensor: 256 bytes, and half a megabyte, of which no cache holds two hundred.
_SIZES: Final = {"tiny": 64, "large": 1 << 17}

# One contestant: makes its tensors once, and returns what is timed and what that changes.
_Made = tuple[Callable[[], Any], list[Tensor]]
_Contest = dict[str, Callable[[int, torch.dtype], _Made]]


def _values(size: int, dtype: torch.dtype, *, positive: bool = False) -> list[Tensor]:
    generator = torch.Generator().manual_seed(size)
    found = [torch.randn(size, generator=generator, dtype=torch.float64) for _ in range(_COUNT)]
    return [(value.abs() if positive else value).to(dtype) for value in found]


def _optimizer(make: Callable[[Any], torch.optim.Optimizer]) -> Callable[..., _Made]:
    def made(size: int, dtype: torch.dtype) -> _Made:
        params = [torch.nn.Parameter(value) for value in _values(size, dtype)]
        for param, gradient in zip(params, _values(size, dtype), strict=True):
            param.grad = gradient.flip(0)
        optimizer = make(params)
        return lambda: optimizer.step(), [param.detach() for param in params]

    return made


def _adamw() -> _Contest:
    return {
        OURS: _optimizer(lambda params: optim.AdamW(params)),
        "torch fused": _optimizer(lambda params: torch.optim.AdamW(params, fused=True)),
        "torch foreach": _optimizer(lambda params: torch.optim.AdamW(params, foreach=True)),
        "torch single": _optimizer(
            lambda params: torch.optim.AdamW(params, foreach=False, fused=False)
        ),
    }


class _ForeachLion(torch.optim.Optimizer):
    """Lion by torch's foreach operations."""

    def __init__(self, params: Any) -> None:
        super().__init__(params, {})
        self._params = self.param_groups[0]["params"]
        self._moments = [torch.zeros_like(param) for param in self._params]

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        gradients = [param.grad for param in self._params]
        updates = torch._foreach_mul(self._moments, 0.9)
        torch._foreach_add_(updates, gradients, alpha=0.1)
        torch._foreach_sign_(updates)
        torch._foreach_mul_(self._params, 1 - 1e-3 * 0.1)
        torch._foreach_add_(self._params, updates, alpha=-1e-3)
        torch._foreach_mul_(self._moments, 0.99)
        torch._foreach_add_(self._moments, gradients, alpha=0.01)


def _lion() -> _Contest:
    return {
        OURS: _optimizer(lambda params: optim.Lion(params, 1e-3, weight_decay=0.1)),
        "torch foreach": _optimizer(_ForeachLion),
    }


def _in_place(run: Callable[..., None], *, positive: bool = False) -> Callable[..., _Made]:
    def made(size: int, dtype: torch.dtype) -> _Made:
        xs = _values(size, dtype)
        ys = _values(size, dtype, positive=positive)
        out = [torch.empty_like(x) for x in xs]
        return lambda: run(out, xs, ys), out

    return made


def _adafactor() -> _Contest:
    """Compare Adafactor's pointwise part: the variance of a vector, and the update from it."""

    def update(x: Any, y: Any, weight: Any, least: Any) -> tuple[Any, Any]:
        y = (x * x - y) * weight + y
        return x * torch.rsqrt(torch.clamp(y, min=least)), y

    def ours(out: list[Tensor], xs: list[Tensor], ys: list[Tensor]) -> None:
        foreach_map_(update, xs, ys, 0.1, 1e-6, out=[out, ys])

    def theirs(out: list[Tensor], xs: list[Tensor], ys: list[Tensor]) -> None:
        # As torch.optim.Adafactor(foreach=True) does, with memory of its own for the update.
        squares = torch._foreach_mul(xs, xs)
        torch._foreach_lerp_(ys, squares, 0.1)
        torch._foreach_copy_(out, ys)
        torch._foreach_clamp_min_(out, 1e-6)
        torch._foreach_rsqrt_(out)
        torch._foreach_mul_(out, xs)

    return {OURS: _in_place(ours, positive=True), "torch foreach": _in_place(theirs, positive=True)}


def _map() -> _Contest:
    """Compare a map that no list operation of torch's is for: a gate with a residual."""

    def gate(x: Any, y: Any, scale: Any) -> Any:
        return torch.sigmoid(x * 1.5) * (y - x) * scale + torch.tanh(y)

    def ours(out: list[Tensor], xs: list[Tensor], ys: list[Tensor]) -> None:
        foreach_map_(gate, xs, ys, 0.5, out=[out])

    def theirs(out: list[Tensor], xs: list[Tensor], ys: list[Tensor]) -> None:
        gates = torch._foreach_mul(xs, 1.5)
        torch._foreach_sigmoid_(gates)
        parts = torch._foreach_sub(ys, xs)
        torch._foreach_mul_(parts, gates)
        torch._foreach_mul_(parts, 0.5)
        torch._foreach_copy_(out, ys)
        torch._foreach_tanh_(out)
        torch._foreach_add_(out, parts)

    def single(out: list[Tensor], xs: list[Tensor], ys: list[Tensor]) -> None:
        for into, x, y in zip(out, xs, ys, strict=True):
            into.copy_(gate(x, y, 0.5))

    return {
        OURS: _in_place(ours),
        "torch foreach": _in_place(theirs),
        "torch single": _in_place(single),
    }


# Of each contest the bytes per element that a float32 step reads and writes.
_CONTESTS: Final[dict[str, tuple[Callable[[], _Contest], int]]] = {
    "AdamW": (_adamw, 28),
    "Lion": (_lion, 20),
    "Adafactor's pointwise part": (_adafactor, 16),
    "a gated map": (_map, 12),
}


def measure_foreach(*, quick: bool, progress: Callable[[str], None]) -> list[Finding]:
    """Measure every contest on 200 tiny and 200 large float32 tensors.

    The share of the bandwidth is that of ``tensor.mul_(1.0)`` on a tensor of 256 MiB, which takes
    its turn in every round.

    Args:
        quick: few rounds on small tensors, whose figures mean nothing.
        progress: receives the name of each step.

    Raises:
        WrongResultError: a step of ours is wrong.
    """
    found: list[Finding] = []
    stream = torch.ones(1 << (16 if quick else 26))
    for name, (contest, element_bytes) in _CONTESTS.items():
        _check(name, contest())
        for kind, size in _SIZES.items():
            case = f"{name}, {_COUNT} {kind}"
            progress(case)
            length = min(size, 256) if quick else size
            steps: dict[str, Callable[[], Any]] = {
                who: make(length, torch.float32)[0] for who, make in contest().items()
            }
            if kind == "large":
                steps["mul_"] = partial(stream.mul_, 1.0)
            times = _rounds(steps, 3 if quick else 15, repeat=1 if kind == "large" else 4)
            found += _judged(case, times, quick)
            if kind == "large":
                moved = _COUNT * length * element_bytes / (stream.numel() * 8)
                shares = [
                    moved * own / ours for own, ours in zip(times["mul_"], times[OURS], strict=True)
                ]
                share = statistics.median(shares)
                found.append(Finding(case, OURS, "share of mul_'s bandwidth", share))
    return found


def _check(name: str, contest: _Contest) -> None:
    """Hold one step of ours against the best of torch's in float64."""
    run, values = contest[OURS](1000, torch.float32)
    best = next(who for who in contest if who != OURS and who != "torch fused")
    exact, expected = contest[best](1000, torch.float64)
    run()
    exact()
    for value, wanted in zip(values, expected, strict=True):
        error = (value.double() - wanted).square().mean().sqrt()
        bound = 16 * torch.finfo(torch.float32).eps * wanted.square().mean().sqrt()
        if not error <= bound:
            raise WrongResultError(f"{name}: an error of {error:.2e}, more than {bound:.2e}")


@torch.no_grad()
def _rounds(
    steps: dict[str, Callable[[], Any]], rounds: int, repeat: int
) -> dict[str, list[float]]:
    times: dict[str, list[float]] = {who: [] for who in steps}
    for turn in range(rounds + 2):
        for who, step in steps.items():
            begin = time.perf_counter()
            for _ in range(repeat):
                step()
            if turn >= 2:
                times[who].append((time.perf_counter() - begin) / repeat)
    return times


def _judged(case: str, times: dict[str, list[float]], quick: bool) -> list[Finding]:
    found = [
        Finding(case, OURS, "microseconds", statistics.median(times[OURS]) * 1e6),
    ]
    for who, rival in times.items():
        if not who.startswith("torch "):
            continue
        ratio = statistics.median(
            other / ours for other, ours in zip(rival, times[OURS], strict=True)
        )
        quantity = f"times {who}"
        asked = {"torch fused": _FUSED_SHARE}.get(who)
        if who == "torch foreach" and "torch fused" not in times:
            asked = _FOREACH_TIMES
        if asked is None or quick:
            found.append(Finding(case, OURS, quantity, ratio))
        else:
            found.append(at_least(case, OURS, quantity, ratio, asked))
    return found
