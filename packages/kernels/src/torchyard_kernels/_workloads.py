"""Workloads of the kernels for ``torchyard doctor --measure``."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import cycle
from typing import Any, Final

from torchyard import Workload, hookimpl

__all__ = ["torchyard_workloads"]

# Outputs, and products for each.
_N = _K = 4096
# Total size of the weights that are read alternately, so that each comes from memory.
_READ_BYTES: Final = 256 << 20
_ROWS: Final = 512
_TOPK_ROWS, _TOPK_LENGTH, _TOPK_K = 256, 131_072, 64
_UPDATED: Final = 1 << 25
_STEPS, _SEQUENCES, _HIDDEN = 50, 64, 512


@hookimpl
def torchyard_workloads(device: str) -> Sequence[Workload]:
    """Return products that read a weight, products that multiply, selection, maps and an LSTM."""
    return [*_reading(device), *_multiplying(device), *_others(device)]


def _reading(device: str) -> Iterator[Workload]:
    for rows, dtype, bits in (
        *((1, "bfloat16", 16), (1, "float16", 16), (4, "float16", 16), (1, "float32", 32)),
        *((1, "bfloat16", 8), (1, "bfloat16", 4)),
    ):
        weight = dtype if bits >= 16 else f"int{bits}"
        amount = _N * _K * bits // 8
        yield Workload(
            f"linear, {rows} row{'s' if rows > 1 else ''}, {weight} weights",
            ("read",),
            amount,
            partial(_prepare_reading, device, rows, dtype, bits, _READ_BYTES // amount),
        )


def _prepare_reading(
    device: str, rows: int, dtype: str, bits: int, weights: int
) -> Callable[[], object]:
    import torch

    from torchyard_kernels import PackedWeight, linear, quantize

    x = torch.randn(rows, _K, device=device, dtype=getattr(torch, dtype))

    def make() -> Any:
        weight = torch.randn(_N, _K, device=device, dtype=x.dtype)
        if bits >= 16:
            return PackedWeight(weight)
        return quantize(weight, bits=8 if bits == 8 else 4)

    packed = cycle([make() for _ in range(weights)])
    return lambda: linear(x, next(packed))


def _multiplying(device: str) -> Iterator[Workload]:
    for dtype in ("bfloat16", "float16", "float32"):
        yield Workload(
            f"linear, {_ROWS} rows, {dtype}",
            (dtype, "float32"),
            2.0 * _ROWS * _N * _K,
            partial(_prepare_multiplying, device, dtype),
        )


def _prepare_multiplying(device: str, dtype: str) -> Callable[[], object]:
    import torch

    from torchyard_kernels import PackedWeight, linear

    make = partial(torch.randn, device=device, dtype=getattr(torch, dtype))
    x, weight = make(_ROWS, _K), PackedWeight(make(_N, _K))
    return lambda: linear(x, weight)


def _others(device: str) -> Iterator[Workload]:
    yield Workload(
        f"topk, {_TOPK_K} of {_TOPK_LENGTH}, float32",
        ("read",),
        4 * _TOPK_ROWS * _TOPK_LENGTH,
        partial(_prepare_topk, device),
    )
    yield Workload(
        "foreach_map_, float32", ("update",), 2 * 4 * _UPDATED, partial(_prepare_map, device)
    )
    # Eight products of each hidden unit with the inputs and the state, for each step and sequence.
    yield Workload(
        f"lstm, {_SEQUENCES} sequences, {_HIDDEN} units, float32",
        ("float32",),
        2.0 * 8 * _HIDDEN * _HIDDEN * _STEPS * _SEQUENCES,
        partial(_prepare_lstm, device),
    )


def _prepare_topk(device: str) -> Callable[[], object]:
    import torch

    from torchyard_kernels import topk

    x = torch.randn(_TOPK_ROWS, _TOPK_LENGTH, device=device)
    return lambda: topk(x, _TOPK_K)


def _prepare_map(device: str) -> Callable[[], object]:
    import torch

    from torchyard_kernels import foreach_map_

    values = [torch.zeros(_UPDATED // 8, device=device) for _ in range(8)]
    return lambda: foreach_map_(lambda x: x * 0.5 + 1.0, values)


def _prepare_lstm(device: str) -> Callable[[], object]:
    import torch

    from torchyard_kernels import lstm

    layer = torch.nn.LSTM(_HIDDEN, _HIDDEN, device=device)
    weights = [parameter.detach() for parameter in layer.parameters()]
    x = torch.randn(_STEPS, _SEQUENCES, _HIDDEN, device=device)
    return lambda: lstm(x, None, weights)
