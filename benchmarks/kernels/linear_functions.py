"""What surrounds linear layers: in the kernels, by torch's operators, compiled."""

from __future__ import annotations

import copy
import itertools
import math
import time
from collections.abc import Callable
from statistics import median
from typing import Final, Literal

import torch
from torch import Tensor
from torch.nn.functional import gelu, silu

from benchmarks.measuring.findings import Finding
from benchmarks.measuring.measure import Effort, WrongResultError
from torchyard_kernels import PackedWeight, linear, quantize

__all__ = ["measure_functions"]

_DEPTH: Final = 2048
_OUTPUTS: Final = 8192
_ROWS: Final = (1, 16, 512)
# Copies of a weight take turns: without them whoever reads the tensor that another has just read
# finds a part of it in a cache.
_BEYOND_CACHES: Final = 256 << 20
_OURS: Final = "torchyard, packed"
_EAGER: Final = "torch, eager"
_COMPILED: Final = "torch, compiled"
_GATED: Final = "rmsnorm and swiglu"
# Name -> bits and group of the weight's codes.
_DEQUANTISED: Final[dict[str, tuple[Literal[8, 4], int]]] = {
    "dequantise int8": (8, 0),
    "dequantise int4": (4, 32),
}

# As it is, or codes [N, K] with scales [N, groups].
_Plain = Tensor | tuple[Tensor, Tensor]


class _Weights:
    """Copies of a layer's weight, plain and packed."""

    def __init__(self, name: str, dtype: torch.dtype, depth: int, outputs: int, room: int) -> None:
        rows = outputs * (2 if name == _GATED else 1)
        weight = (torch.randn(rows, depth) / depth**0.5).to(dtype)
        self.plain: list[_Plain]
        if name in _DEQUANTISED:
            bits, group = _DEQUANTISED[name]
            count = max(3, math.ceil(room / (weight.numel() * bits // 8)))
            self.packed = [quantize(weight, bits=bits, group_size=group) for _ in range(count)]
            codes, scale = _codes(self.packed[0], group or depth)
            self.plain = [(codes.clone(), scale.clone()) for _ in range(count)]
            return
        count = max(3, math.ceil(room / weight.nbytes))
        self.plain = [weight.clone() for _ in range(count)]
        self.packed = [PackedWeight(weight) for _ in range(count)]


def _codes(packed: PackedWeight, group: int) -> tuple[Tensor, Tensor]:
    """Return a weight's codes int8 [N, K], a byte each, and its scales float32 [N, K / group]."""
    values = packed.unpack().float()
    scale = packed.tensors[1].float().transpose(1, 2).flatten(0, 1)[: len(values)]
    codes = values.reshape(len(values), -1, group) / scale[..., None]
    return codes.round().to(torch.int8).flatten(1), scale.contiguous()


class _Layer:
    """One layer's other tensors and its two spellings."""

    def __init__(self, name: str, dtype: torch.dtype, rows: int, depth: int, outputs: int) -> None:
        self.name = name
        self.x = torch.randn(rows, depth).to(dtype)
        self.bias = torch.randn(outputs).to(dtype)
        self.scale = torch.randn(depth).to(dtype)
        self.residual = torch.randn(rows, outputs).to(dtype)

    def ours(self, x: Tensor, weight: PackedWeight) -> Tensor:
        """Return the result of one call."""
        # Names, so that what was recorded of a function is known to hold for the next call.
        residual, scale = self.residual, self.scale
        if self.name == "bias and gelu":
            return linear(x, weight, self.bias, epilogue=gelu)
        if self.name == "residual":
            return linear(x, weight, epilogue=lambda y: y + residual)
        if self.name in _DEQUANTISED:
            return linear(x, weight)
        norm = torch.rsqrt(x.float().square().mean(-1, keepdim=True) + 1e-6)
        return linear(
            x,
            weight,
            prologue=lambda x: x * norm * scale,
            epilogue=lambda gate, up: silu(gate) * up,
        )

    def exact(self, weight: _Plain) -> Tensor:
        """Return it in float64."""
        wide = copy.copy(self)
        for name in ("x", "bias", "scale", "residual"):
            setattr(wide, name, getattr(self, name).double())
        return wide.torchs(wide.x, weight if isinstance(weight, tuple) else weight.double())

    def torchs(self, x: Tensor, weight: _Plain) -> Tensor:
        """Return it as torch's own layers spell it."""
        if isinstance(weight, tuple):
            codes, scale = weight
            groups = codes.reshape(*scale.shape, -1).to(x.dtype)
            whole = (groups * scale[..., None].to(x.dtype)).flatten(1)
            return torch.nn.functional.linear(x, whole)
        if self.name == "bias and gelu":
            return gelu(torch.nn.functional.linear(x, weight, self.bias))
        if self.name == "residual":
            return torch.nn.functional.linear(x, weight) + self.residual
        scaled = torch.nn.functional.rms_norm(x, x.shape[-1:], self.scale, 1e-6)
        gate, up = torch.nn.functional.linear(scaled, weight).chunk(2, -1)
        return silu(gate) * up


def measure_functions(
    effort: Effort, *, quick: bool, progress: Callable[[str], None]
) -> list[Finding]:
    """Time each layer warm, contestants in turns, and the first call of those that compile.

    Args:
        effort: how often.
        quick: small layers, and nothing is compiled: the figures mean nothing.
        progress: receives the name of each step.

    Raises:
        WrongResultError: a result is wrong.
    """
    depth, outputs = (64, 96) if quick else (_DEPTH, _OUTPUTS)
    findings: list[Finding] = []
    for dtype in (torch.float16, torch.bfloat16):
        for name in ("bias and gelu", _GATED, "residual", *_DEQUANTISED):
            weights = _Weights(name, dtype, depth, outputs, 0 if quick else _BEYOND_CACHES)
            for rows in _ROWS:
                layer = _Layer(name, dtype, rows, depth, outputs)
                case = f"{name}, {str(dtype)[6:]}, {rows} {'row' if rows == 1 else 'rows'}"
                progress(case)
                findings += _measured(case, layer, weights, effort, compiled=not quick)
    return findings


def _measured(
    case: str, layer: _Layer, weights: _Weights, effort: Effort, *, compiled: bool
) -> list[Finding]:
    plain, packed = weights.plain, weights.packed
    ways: dict[str, Callable[[int], Tensor]] = {
        _OURS: lambda i: layer.ours(layer.x, packed[i]),
        _EAGER: lambda i: layer.torchs(layer.x, plain[i]),
    }
    if compiled:
        torch._dynamo.reset()
        run = torch.compile(layer.torchs)
        ways[_COMPILED] = lambda i: run(layer.x, plain[i])
    findings, exact = [], layer.exact(plain[0])
    for who, way in ways.items():
        start = time.perf_counter()
        out = way(0)
        findings.append(Finding(case, who, "first call, ms", 1e3 * (time.perf_counter() - start)))
        error = float((out.double() - exact).square().mean().sqrt())
        # torch rounds y between its operators: some roundings of the dtype.
        allowed = 8 * torch.finfo(layer.x.dtype).eps * float(exact.square().mean().sqrt())
        if not error <= allowed:
            raise WrongResultError(
                f"{case}, {who}: expected within {allowed:.2e} of float64, got {error:.2e}"
            )
    seconds: dict[str, list[float]] = {who: [] for who in ways}
    numbers = itertools.cycle(range(len(plain)))
    start = time.perf_counter()
    for done in range(effort.rounds):
        if done >= 5 and time.perf_counter() - start > effort.seconds:
            break
        for who, way in ways.items():
            number = next(numbers)
            begin = time.perf_counter()
            way(number)
            seconds[who].append(time.perf_counter() - begin)
    ours = seconds[_OURS]
    for who, times in seconds.items():
        findings.append(Finding(case, who, "milliseconds", 1e3 * median(times)))
        if who != _OURS:
            ratio = median(theirs / mine for theirs, mine in zip(times, ours, strict=True))
            findings.append(Finding(case, who, "its time over ours", ratio))
    return findings
