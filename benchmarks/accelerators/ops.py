"""Linear and recurrent layers, topk and maps: every implementation beside torch's own functions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final

import torch
from torch import Tensor
from torch.nn import functional

from torchyard_kernels import capture, foreach_map, linear, lstm, quantize, topk

__all__ = ["OPS", "OpCase"]


@dataclass(frozen=True, slots=True)
class OpCase:
    """A call of a public function, and what else computes it.

    Attributes:
        contract: whose implementations race; empty where there are none to choose from.
        run: calls the public function.
        exact: returns what is right, in float64.
        peers: what torch has for it, by name; each returns what run returns.
        operations: multiplications and additions.
        size: bytes that are read and written at the least.
        tolerance: of the largest difference, over the largest number that is right.
    """

    contract: str
    run: Callable[[], Any]
    exact: Callable[[], Tensor]
    peers: Mapping[str, Callable[[], Any]] = field(default_factory=dict)
    operations: float = 0.0
    size: float = 0.0
    tolerance: float = 1e-2

    def wrong(self, result: Any) -> str:
        """Return how a result differs; empty where it does not."""
        exact = self.exact().double()
        found = _first(result).double()
        if found.shape != exact.shape:
            return f"shape {tuple(found.shape)} in place of {tuple(exact.shape)}"
        off = float((found - exact).abs().max() / exact.abs().max())
        return "" if off <= self.tolerance else f"off by {off:.2g} of the largest"


def _first(result: Any) -> Tensor:
    """Return the first tensor of what a function returns; of a list of tensors, all as one."""
    if isinstance(result, Tensor):
        return result
    if isinstance(result, list):
        return torch.cat([one.flatten() for one in result])
    return _first(result[0])


def _drawn(device: str, *shape: int, dtype: torch.dtype = torch.bfloat16) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(0)).to(device, dtype)


def _topk(device: str, rows: int, length: int, k: int, dtype: torch.dtype) -> OpCase:
    x = _drawn(device, rows, length, dtype=dtype)
    return OpCase(
        "topk/1",
        lambda: topk(x, k),
        lambda: x.double().sort(-1, descending=True).values[:, :k],
        {
            "torch.topk": lambda: torch.topk(x, k),
            "torch.sort": lambda: x.sort(stable=True, descending=True)[0][:, :k].contiguous(),
        },
        size=x.numel() * x.element_size(),
        tolerance=0.0,
    )


def _linear(device: str, rows: int, width: int, bits: int = 16, fused: bool = False) -> OpCase:
    x, weight = _drawn(device, rows, width), _drawn(device, width, width) / width**0.5
    held: Any = weight if bits == 16 else quantize(weight, bits=8 if bits == 8 else 4)
    epilogue = functional.gelu if fused else None
    plain = weight if bits == 16 else held.unpack().to(weight)

    def torch_way() -> Tensor:
        out = functional.linear(x, plain)
        return functional.gelu(out) if fused else out

    def exact() -> Tensor:
        out = functional.linear(x.double(), plain.double())
        return functional.gelu(out) if fused else out

    peers = {"torch.linear": torch_way}
    if fused:
        peers["torch.compile"] = torch.compile(torch_way, dynamic=False)
    return OpCase(
        "linear/1",
        lambda: linear(x, held, epilogue=epilogue),
        exact,
        peers,
        operations=2.0 * rows * width**2,
        size=width**2 * bits / 8 + 4.0 * rows * width,
        tolerance=2e-2,
    )


def _lstm(device: str, steps: int, batch: int, width: int) -> OpCase:
    dtype = torch.float16
    layer = torch.nn.LSTM(width, width, device=device, dtype=dtype)
    x = _drawn(device, steps, batch, width, dtype=dtype)
    weights = list(layer.parameters())

    def exact() -> Tensor:
        with torch.no_grad():
            wide = torch.nn.LSTM(width, width, device=device, dtype=torch.float64)
            wide.load_state_dict(layer.state_dict())
            with torch.backends.cudnn.flags(enabled=False):
                out: Tensor = wide(x.double())[0]
        return out

    def without_grad(run: Callable[[], Any]) -> Callable[[], Any]:
        def quiet() -> Any:
            with torch.no_grad():
                return run()

        return quiet

    return OpCase(
        "recurrent/1",
        without_grad(lambda: lstm(x, None, weights)),
        exact,
        {"torch.nn.LSTM": without_grad(lambda: layer(x))},
        operations=2.0 * steps * batch * 8 * width**2,
        size=8.0 * width**2 * 2 + 4.0 * x.numel(),
    )


def _map(device: str, count: int, length: int) -> OpCase:
    lists = [[_drawn(device, length, dtype=torch.float32) for _ in range(count)] for _ in range(3)]

    def step(p: Any, g: Any, m: Any) -> Any:
        return p - 0.01 * torch.tanh(0.9 * m + 0.1 * g * g)

    def foreach() -> list[Tensor]:
        params, grads, moments = lists
        squares = torch._foreach_mul(grads, grads)
        torch._foreach_mul_(squares, 0.1)
        torch._foreach_add_(squares, moments, alpha=0.9)
        torch._foreach_tanh_(squares)
        return list(torch._foreach_add(params, squares, alpha=-0.01))

    def compiled(*given: list[Tensor]) -> list[Tensor]:
        return [step(*group) for group in zip(*given, strict=True)]

    fused = torch.compile(compiled, dynamic=False)
    return OpCase(
        "pointwise/1",
        lambda: foreach_map(step, *lists),
        lambda: torch.cat(
            [step(*(one.double() for one in group)) for group in zip(*lists, strict=True)]
        ),
        {"torch._foreach": foreach, "torch.compile": lambda: fused(*lists)},
        size=16.0 * count * length,
        tolerance=1e-5,
    )


def _topk_cases(device: str, quick: bool) -> Iterator[tuple[str, OpCase]]:
    half, full = torch.bfloat16, torch.float32
    for rows, length, k, dtype in (
        *((64, 4096, 8, full), (64, 4096, 64, half), (64, 131072, 64, full)),
        *((4, 1 << 20, 1024, full), (32, 50257, 50, half), (8192, 256, 8, half)),
    ):
        if quick:
            rows, length = min(rows, 4), min(length, 4096)
        name = f"topk {rows}x{length} k={k} {str(dtype)[6:]}"
        yield name, _topk(device, rows, length, k, dtype)


def _linear_cases(device: str, quick: bool) -> Iterator[tuple[str, OpCase]]:
    width = 256 if quick else 4096
    for rows in (1, 16, 128, 4096):
        for bits in (16, 8, 4):
            yield f"linear {rows} rows {bits} bits", _linear(device, rows, width, bits)
    for rows in (16, 4096):
        yield f"linear {rows} rows gelu", _linear(device, rows, width, fused=True)


def _recurrent_cases(device: str, quick: bool) -> Iterator[tuple[str, OpCase]]:
    for steps, batch, width in ((128, 32, 512), (128, 1, 512), (512, 64, 1024)):
        if quick:
            steps, batch, width = 4, 2, 32
        yield f"lstm {steps}x{batch}x{width} float16", _lstm(device, steps, batch, width)


def _map_cases(device: str, quick: bool) -> Iterator[tuple[str, OpCase]]:
    for count, length in ((200, 4096), (64, 1 << 20)):
        if quick:
            count, length = 4, 64
        yield f"map {count} tensors of {length}", _map(device, count, length)


def _graph_cases(device: str, quick: bool) -> Iterator[tuple[str, OpCase]]:
    weights = [_drawn(device, 1024, 1024) / 32 for _ in range(16)]
    x = _drawn(device, 4, 1024)

    def step(x: Tensor) -> Tensor:
        for weight in weights:
            x = functional.gelu(x @ weight) + x
        return x

    graph = capture(step, x)
    peers: dict[str, Callable[[], Any]] = {"eager": lambda: step(x)}
    if device == "cuda":
        peers["torch.cuda.graph"] = _torch_graph(step, x)
    yield (
        "graph of 48 small operators",
        OpCase("", lambda: graph(x), lambda: step(x), peers, size=2.0 * 16 * 1024**2),
    )


def _torch_graph(step: Callable[[Tensor], Tensor], x: Tensor) -> Callable[[], Tensor]:
    held, graph = x.clone(), torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = step(held)

    def replay() -> Tensor:
        held.copy_(x)
        graph.replay()
        return out.clone()

    return replay


# By op: yields its cases on a device, by name; with sizes for a trial of the benchmark itself.
OPS: Final[Mapping[str, Callable[[str, bool], Iterator[tuple[str, OpCase]]]]] = MappingProxyType(
    {
        "topk": _topk_cases,
        "linear": _linear_cases,
        "recurrent": _recurrent_cases,
        "pointwise": _map_cases,
        "graph": _graph_cases,
    }
)
