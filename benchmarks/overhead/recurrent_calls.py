"""What a call of a recurrent layer costs beside its arithmetic."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

import torchyard_kernels
from benchmarks.measuring.findings import Finding
from benchmarks.overhead.calls import around
from torchyard_kernels.recurrent.contract import RecurrentKind

__all__ = ["overhead"]


@torch.no_grad()
def overhead(
    case: str, module: torch.nn.RNNBase, x: Tensor, state: Any, *, quick: bool
) -> Iterator[Finding]:
    """Yield what a call with plain weights costs around its kernel.

    Args:
        case: its name.
        module: an LSTM or a GRU.
        x: [T, B, I].
        state: as the module takes it.
        quick: few rounds, whose figures mean nothing.
    """
    weights: list[Tensor] = list(module.parameters())
    lstm = isinstance(module, torch.nn.LSTM)
    bare = _native(x, state if lstm else (state,), weights)
    function: Any = torchyard_kernels.lstm if lstm else torchyard_kernels.gru
    yield from around(case, "the kernel", lambda: function(x, state, weights), bare, quick=quick)


def _native(x: Tensor, state: tuple[Tensor, ...], weights: list[Tensor]) -> Callable[[], Any]:
    """Return a call of the kernel on addresses, with its weights packed each time."""
    from torchyard_cpu import _native

    kind = RecurrentKind.LSTM if len(state) == 2 else RecurrentKind.GRU
    features = set(_native.cpu_features())
    name = next(
        name
        for name, dtype, _, needs in _native.recurrent_kernels()
        if dtype == str(x.dtype)[6:] and features >= set(needs)
    )
    steps, batch, size = x.shape
    sizes = (list(RecurrentKind).index(kind), size, size, size, 1, 1, False)
    packed = torch.empty(_native.recurrent_packed_bytes(name, sizes) + 64, dtype=torch.uint8)
    at = -(-packed.data_ptr() // 64) * 64
    places = (*(weight.data_ptr() for weight in weights), 0)
    output, ends = torch.empty_like(x), tuple(torch.empty_like(one) for one in state)
    # A GRU has no cell.
    begin, end = (
        (one[0].data_ptr(), one[1].data_ptr() if len(one) == 2 else 0) for one in (state, ends)
    )
    addresses = (*begin, at, 0, output.data_ptr(), *end, 0)
    given = (x.data_ptr(), x.stride(0), x.stride(1))
    kept = (packed, output, ends)

    def run() -> Any:
        _native.recurrent_pack(name, sizes, places, at, 1)
        _native.recurrent_forward(name, sizes, (steps, batch), given, addresses, 1, False)
        return kept

    return run
