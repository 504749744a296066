"""What a call of a recurrent layer costs beside its arithmetic."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any, Final

import torch
from torch import Tensor

import torchyard_kernels
from benchmarks.findings import Finding, at_most
from torchyard_kernels.contracts.recurrent import RecurrentKind

__all__ = ["overhead"]

_OURS: Final = "torchyard"
# Microseconds that a call may cost beside its arithmetic.
_AROUND: Final = 3.0
_CALLS: Final = 1000


@torch.no_grad()
def overhead(
    case: str, module: torch.nn.RNNBase, x: Tensor, state: Any, *, quick: bool
) -> Iterator[Finding]:
    """Yield what a call with plain weights costs around what serves it.

    Args:
        case: its name.
        module: an LSTM, which torch's own layer serves, or a GRU, which the native kernel serves.
        x: [T, B, I].
        state: as the module takes it.
        quick: few rounds, whose figures mean nothing.
    """
    weights: list[Tensor] = list(module.parameters())
    if isinstance(module, torch.nn.LSTM):
        whose, bare = "torch.lstm", _torch_lstm(x, state, weights)
        ours: Callable[[], Any] = lambda: torchyard_kernels.lstm(x, state, weights)  # noqa: E731
    else:
        whose, bare = "the kernel", _native_gru(x, state, weights)
        ours = lambda: torchyard_kernels.gru(x, state, weights)  # noqa: E731
    spent: tuple[list[float], list[float]] = ([], [])
    for _ in range(3 if quick else 15):
        for call, times in zip((ours, bare), spent, strict=True):
            call()
            start = time.perf_counter()
            for _ in range(_CALLS):
                call()
            times.append((time.perf_counter() - start) / _CALLS * 1e6)
    around = statistics.median(mine - theirs for mine, theirs in zip(*spent, strict=True))
    yield at_most(case, _OURS, f"us around {whose}", around, _AROUND)
    yield Finding(case, _OURS, "us per call", statistics.median(spent[0]))


def _torch_lstm(x: Tensor, state: Any, weights: list[Tensor]) -> Callable[[], Any]:
    return lambda: torch.lstm(x, state, weights, True, 1, 0.0, False, False, False)


def _native_gru(x: Tensor, hidden: Tensor, weights: list[Tensor]) -> Callable[[], Any]:
    """Return a call of the kernel on addresses, with its weights packed each time."""
    from torchyard_cpu import _native

    features = set(_native.cpu_features())
    name = next(
        name
        for name, dtype, _, needs in _native.recurrent_kernels()
        if dtype == str(x.dtype)[6:] and features >= set(needs)
    )
    steps, batch, size = x.shape
    sizes = (list(RecurrentKind).index(RecurrentKind.GRU), size, size, size, 1, 1, False)
    packed = torch.empty(_native.recurrent_packed_bytes(name, sizes) + 64, dtype=torch.uint8)
    at = -(-packed.data_ptr() // 64) * 64
    places = (*(weight.data_ptr() for weight in weights), 0)
    output, hidden_out = torch.empty_like(x), torch.empty_like(hidden)
    addresses = (hidden.data_ptr(), 0, at, 0, output.data_ptr(), hidden_out.data_ptr(), 0, 0)
    given = (x.data_ptr(), x.stride(0), x.stride(1))
    kept = (packed, output, hidden_out)

    def run() -> tuple[Tensor, ...]:
        _native.recurrent_pack(name, sizes, places, at, 1)
        _native.recurrent_forward(name, sizes, (steps, batch), given, addresses, 1, False)
        return kept

    return run
