"""Captured functions beside the functions: a chain of small operators, and a decode step."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any, Final
from unittest.mock import patch

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from benchmarks.measuring.findings import Finding
from benchmarks.measuring.measure import WrongResultError
from torchyard_kernels import Graph, GraphParityError, UncapturableError, capture
from torchyard_kernels.graphs.implementations import recorded as on_cpu
from torchyard_kernels.graphs.implementations._eager_replay import eager_replay
from torchyard_kernels.graphs.implementations._jit_replay import jit_replay

__all__ = ["measure_graphs"]

_OPERATORS: Final = 64
_SIZES: Final = (8, 64, 256)
_POSITIONS: Final = 64


def measure_graphs(*, quick: bool, progress: Callable[[str], None]) -> list[Finding]:
    """Measure eager and each way to replay, and that what cannot be captured is refused.

    Args:
        quick: few rounds.
        progress: receives the name of each step.

    Raises:
        WrongResultError: a replay differs from the function by a bit; nothing is timed then.
    """
    findings: list[Finding] = []
    rounds = 3 if quick else 25
    for size in _SIZES:
        progress(f"chain of {_OPERATORS} at {size} x {size}")
        x, y = torch.randn(size, size), torch.rand(size, size)
        case = f"{_OPERATORS} operators, {size} x {size}"
        findings += _compared(case, _chain, (x, y), (), rounds)
    case = f"{_OPERATORS} operators, half of them with a number, {_SIZES[1]} x {_SIZES[1]}"
    progress(case)
    x, y = torch.randn(_SIZES[1], _SIZES[1]), torch.rand(_SIZES[1], _SIZES[1])
    findings += _compared(case, _numbered, (x, y), (), rounds)
    for size, blocks in ((64, 4), (256, 4)):
        progress(f"decode step of {size}")
        model = _Decoder(size, blocks)
        given = (torch.tensor([[5]]), torch.tensor([_POSITIONS // 2]))
        case = f"decode step, {blocks} blocks of {size}"
        findings += _compared(case, model.step, given, model.cache(), rounds)
    findings += _refused()
    return findings


def _compared(
    case: str, fn: Callable[..., Any], given: tuple[Tensor, ...], state: Any, rounds: int
) -> Iterator[Finding]:
    ways: dict[str, Callable[..., Any]] = {"eager": fn}
    graphs: dict[str, Graph] = {}
    for name, mechanism in (("interpreter", jit_replay), ("calls from Python", eager_replay)):
        with patch.object(on_cpu, "jit_replay", mechanism):
            graphs[name] = capture(fn, *given, state=state)
        try:
            graphs[name].check(*given)
        except GraphParityError as error:
            raise WrongResultError(f"graphs, {case}, {name}: {error}") from error
        ways[name] = graphs[name]
    times: dict[str, list[float]] = {name: [] for name in ways}
    repeats = max(1, min(200, int(0.01 / _seconds(lambda: fn(*given)))))
    with torch.no_grad():
        for _ in range(rounds):
            for name, way in ways.items():
                start = time.perf_counter()
                for _ in range(repeats):
                    way(*given)
                times[name].append((time.perf_counter() - start) / repeats * 1e6)
    for name in graphs:
        faster = [e / g for e, g in zip(times["eager"], times[name], strict=True)]
        yield Finding(case, name, "times eager", statistics.median(faster))
    graph = graphs["interpreter"]
    yield Finding(case, "interpreter", "operators replayed", graph.launches)
    memory = graph.memory
    if memory.planned and memory.asked:
        yield Finding(
            case, "interpreter", "memory held of that asked", memory.planned / memory.asked
        )
    yield Finding(case, "interpreter", "results that differ from eager by a bit", 0.0, 0.0, True)


def _refused() -> Iterator[Finding]:
    def fn(x: Tensor) -> Tensor:
        return x * 2 if x.sum().item() > 0 else x

    try:
        capture(fn, torch.ones(3))
    except UncapturableError as error:
        named = error.op == "Tensor.item" and __file__ in error.line
        yield Finding("a function that reads a value", error.op, "refused by name", 1.0, 1.0, named)
    else:
        yield Finding("a function that reads a value", "none", "refused by name", 0.0, 1.0, False)


def _chain(x: Tensor, y: Tensor) -> Tensor:
    for at in range(_OPERATORS):
        x = x + y if at % 2 else x * y
    return x


def _numbered(x: Tensor, y: Tensor) -> Tensor:
    for at in range(_OPERATORS):
        x = x + y if at % 2 else x * 0.9
    return x


class _Block(nn.Module):
    def __init__(self, size: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.before, self.between = nn.RMSNorm(size), nn.RMSNorm(size)
        self.projections, self.out = nn.Linear(size, 3 * size), nn.Linear(size, size)
        self.up, self.down = nn.Linear(size, 4 * size), nn.Linear(4 * size, size)
        self.keys = torch.zeros(1, heads, _POSITIONS, size // heads)
        self.values = torch.zeros(1, heads, _POSITIONS, size // heads)

    def forward(self, x: Tensor, position: Tensor) -> Tensor:
        size = x.shape[-1]
        projected = self.projections(self.before(x)).view(1, 1, 3, self.heads, size // self.heads)
        query, key, value = projected.permute(2, 0, 3, 1, 4)
        self.keys.index_copy_(2, position, key)
        self.values.index_copy_(2, position, value)
        seen = (torch.arange(_POSITIONS) <= position)[None, None, None]
        attended = F.scaled_dot_product_attention(query, self.keys, self.values, attn_mask=seen)
        x = x + self.out(attended.transpose(1, 2).reshape(1, 1, size))
        fed: Tensor = self.down(F.gelu(self.up(self.between(x))))
        return x + fed


class _Decoder(nn.Module):
    def __init__(self, size: int, blocks: int) -> None:
        super().__init__()
        self.embedding, self.head = nn.Embedding(100, size), nn.Linear(size, 100)
        made = [_Block(size, 4) for _ in range(blocks)]
        self.blocks = nn.ModuleList(made)
        self.caches = [cache for block in made for cache in (block.keys, block.values)]

    def cache(self) -> list[Tensor]:
        return list(self.caches)

    @torch.no_grad()
    def step(self, token: Tensor, position: Tensor) -> Tensor:
        x = self.embedding(token)
        for block in self.blocks:
            x = block(x, position)
        found: Tensor = self.head(x).argmax(-1)
        return found


def _seconds(call: Callable[[], Any]) -> float:
    call()
    start = time.perf_counter()
    call()
    return max(time.perf_counter() - start, 1e-9)
