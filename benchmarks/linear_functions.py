"""Functions before and after linear layers: in the kernels, by torch's operators, compiled."""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median
from typing import Final

import torch
from torch import Tensor
from torch.nn.functional import gelu, silu

from benchmarks.findings import Finding
from benchmarks.measure import Effort, WrongResultError
from torchyard_kernels import PackedWeight, linear

__all__ = ["measure_functions"]

_DEPTH: Final = 2048
_OUTPUTS: Final = 8192
_ROWS: Final = (1, 16, 512)
_OURS: Final = "torchyard, packed"
_EAGER: Final = "torch, eager"
_COMPILED: Final = "torch, compiled"


class _Layer:
    """One layer's tensors and its two spellings."""

    def __init__(self, name: str, dtype: torch.dtype, rows: int, depth: int, outputs: int) -> None:
        self.name = name
        gated = name == "rmsnorm and swiglu"
        self.x = torch.randn(rows, depth).to(dtype)
        self.weight = (torch.randn(outputs * (2 if gated else 1), depth) / depth**0.5).to(dtype)
        self.bias = torch.randn(outputs).to(dtype)
        self.scale = torch.randn(depth).to(dtype)
        self.residual = torch.randn(rows, outputs).to(dtype)
        self.packed = PackedWeight(self.weight)

    def ours(self, x: Tensor) -> Tensor:
        """Return the result of one call."""
        # Names, so that what was recorded of a function is known to hold for the next call.
        residual, scale = self.residual, self.scale
        if self.name == "bias and gelu":
            return linear(x, self.packed, self.bias, epilogue=gelu)
        if self.name == "residual":
            return linear(x, self.packed, epilogue=lambda y: y + residual)
        norm = torch.rsqrt(x.float().square().mean(-1, keepdim=True) + 1e-6)
        return linear(
            x,
            self.packed,
            prologue=lambda x: x * norm * scale,
            epilogue=lambda gate, up: silu(gate) * up,
        )

    def torchs(self, x: Tensor) -> Tensor:
        """Return it as torch's own layers spell it."""
        if self.name == "bias and gelu":
            return gelu(torch.nn.functional.linear(x, self.weight, self.bias))
        if self.name == "residual":
            return torch.nn.functional.linear(x, self.weight) + self.residual
        scaled = torch.nn.functional.rms_norm(x, x.shape[-1:], self.scale, 1e-6)
        gate, up = torch.nn.functional.linear(scaled, self.weight).chunk(2, -1)
        return silu(gate) * up


def measure_functions(
    effort: Effort, *, quick: bool, progress: Callable[[str], None]
) -> list[Finding]:
    """Time each layer warm, contestants in turns, and the first call of those that compile.

    Args:
        effort: how often.
        quick: small layers, and nothing is compiled: the figures mean nothing.
        progress: is told what comes next.

    Raises:
        WrongResultError: a result is wrong.
    """
    depth, outputs = (64, 96) if quick else (_DEPTH, _OUTPUTS)
    findings: list[Finding] = []
    for dtype in (torch.float16, torch.bfloat16):
        for name in ("bias and gelu", "rmsnorm and swiglu", "residual"):
            for rows in _ROWS:
                layer = _Layer(name, dtype, rows, depth, outputs)
                case = f"{name}, {str(dtype)[6:]}, {rows} {'row' if rows == 1 else 'rows'}"
                progress(case)
                findings += _measured(case, layer, effort, compiled=not quick)
    return findings


def _measured(case: str, layer: _Layer, effort: Effort, *, compiled: bool) -> list[Finding]:
    ways: dict[str, Callable[[Tensor], Tensor]] = {_OURS: layer.ours, _EAGER: layer.torchs}
    if compiled:
        torch._dynamo.reset()
        ways[_COMPILED] = torch.compile(layer.torchs)
    findings, exact = [], layer.torchs(layer.x).double()
    for who, way in ways.items():
        start = time.perf_counter()
        out = way(layer.x)
        findings.append(Finding(case, who, "first call, ms", 1e3 * (time.perf_counter() - start)))
        error = float((out.double() - exact).square().mean().sqrt())
        # torch rounds y between its operators: the two differ by some roundings of the dtype.
        allowed = 8 * torch.finfo(layer.x.dtype).eps * float(exact.square().mean().sqrt())
        if not error <= allowed:
            raise WrongResultError(
                f"{case}, {who}: expected within {allowed:.2e} of torch, got {error:.2e}"
            )
    seconds: dict[str, list[float]] = {who: [] for who in ways}
    start = time.perf_counter()
    for done in range(effort.rounds):
        if done >= 5 and time.perf_counter() - start > effort.seconds:
            break
        for who, way in ways.items():
            begin = time.perf_counter()
            way(layer.x)
            seconds[who].append(time.perf_counter() - begin)
    ours = seconds[_OURS]
    for who, times in seconds.items():
        findings.append(Finding(case, who, "milliseconds", 1e3 * median(times)))
        if who != _OURS:
            ratio = median(theirs / mine for theirs, mine in zip(times, ours, strict=True))
            findings.append(Finding(case, who, "its time over ours", ratio))
    return findings
