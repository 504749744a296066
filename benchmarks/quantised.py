"""``python -m benchmarks.quantised [--rows M ...] [--rounds N]``

Products with weights of 8 and 4 bits, 4096 x 4096, beside torch's packed operators. Weights take
turns, so that they come from memory; contestants take turns in each round.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any, Final

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor

from benchmarks.limits import Probe
from torchyard_kernels import linear, quantize

__all__ = ["contestants"]

_SIZE: Final = 4096
_GROUP: Final = 32
# Beyond any cache, of each contestant's weights.
_BYTES: Final = 192 << 20
_ASKED: Final = 1.8
# Two probes of the memory that differ by more say nothing.
_AGREE: Final = 1.15
_COLUMNS: Final = (
    *("contestant", "GFLOP/s", "share of memory's speed", "times torch's best"),
    *("at memory's speed it would be", ""),
)

Call = Callable[[Tensor], Tensor]


def contestants() -> dict[str, tuple[int, int, list[Call]]]:
    """Return name -> (bits, bytes of a weight, a call for each copy of the weight)."""
    torch.manual_seed(0)
    weight = torch.randn(_SIZE, _SIZE).bfloat16()
    found: dict[str, tuple[int, int, list[Call]]] = {}
    for bits, group in ((8, 0), (4, _GROUP)):
        for activation in (None, "int8"):
            packed = quantize(weight, bits=bits, group_size=group, activation=activation)  # type: ignore[arg-type]
            held = sum(tensor.nbytes for tensor in packed.tensors)
            copies = [packed]
            while len(copies) * held < _BYTES:
                copies.append(type(packed).from_state(_cloned(packed.state_dict())))
            name = f"torchyard int{bits}" + (" x int8" if activation else "")
            found[name] = (bits, held, [_ours(copy) for copy in copies])
    found |= _torchs(weight)
    return found


def _cloned(state: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: tensor.clone() for name, tensor in state.items()}


def _ours(packed: Any) -> Call:
    return lambda x: linear(x, packed)


def _torchs(weight: Tensor) -> dict[str, tuple[int, int, list[Call]]]:
    aten: Any = torch.ops.aten
    quantization: Any = torch.ao.quantization
    scale = weight.float().abs().amax(1) / 127
    codes = (weight.float() / scale[:, None]).round().to(torch.int8)
    eight = [codes.clone() for _ in range(_BYTES // codes.nbytes)]
    low = scale.bfloat16()
    grouped = weight.float().reshape(_SIZE, -1, _GROUP)
    scales = grouped.abs().amax(-1) / 7.5
    nibbles = (grouped / scales[..., None]).round().clamp(-8, 7) + 8
    four = aten._convert_weight_to_int4pack_for_cpu(
        nibbles.reshape(_SIZE, _SIZE).to(torch.int32), 1
    )
    fours = [four.clone() for _ in range(_BYTES // four.nbytes)]
    pairs = torch.stack((scales.T, torch.zeros_like(scales.T)), -1).bfloat16().contiguous()
    layer = torch.nn.Linear(_SIZE, _SIZE, bias=False)
    with torch.no_grad():
        layer.weight.copy_(weight)
    dynamic = [
        quantization.quantize_dynamic(
            torch.nn.Sequential(layer), {torch.nn.Linear}, dtype=torch.qint8
        )
        for _ in range(_BYTES // codes.nbytes)
    ]
    return {
        "torch int8pack": (
            8,
            codes.nbytes,
            [lambda x, w=copy: aten._weight_int8pack_mm(x, w, low) for copy in eight],  # type: ignore[misc]
        ),
        "torch dynamic int8": (
            8,
            codes.nbytes,
            [lambda x, m=copy: m(x.float()).to(x.dtype) for copy in dynamic],  # type: ignore[misc]
        ),
        "torch int4pack": (
            4,
            four.nbytes,
            [
                lambda x, w=copy: aten._weight_int4pack_mm_for_cpu(x, w, _GROUP, pairs)  # type: ignore[misc]
                for copy in fours
            ],
        ),
    }


def _check(name: str, bits: int, call: Call, x: Tensor, weight: Tensor) -> None:
    """Raise AssertionError where a contestant's result is not that of the weight, rounded."""
    exact = x.double() @ weight.double().T
    error = float((call(x).double() - exact).norm() / exact.norm())
    most = {8: 0.03, 4: 0.12}[bits]
    if not error <= most:
        raise AssertionError(f"{name}: expected an error of at most {most}, got {error:.3f}")


def _main() -> None:
    parser = argparse.ArgumentParser(prog="benchmarks.quantised", description=__doc__)
    parser.add_argument("--rows", type=int, nargs="+", default=[1])
    parser.add_argument("--rounds", type=int, default=30)
    arguments = parser.parse_args()
    console = Console(width=None if sys.stdout.isatty() else 120)
    entered = contestants()
    torch.manual_seed(0)
    weight = torch.randn(_SIZE, _SIZE).bfloat16()
    with Probe() as probe:
        for rows in arguments.rows:
            x = torch.randn(rows, _SIZE).bfloat16()
            for name, (bits, _, calls) in entered.items():
                _check(name, bits, calls[0], x, weight)
            console.print(_measured(entered, x, arguments.rounds, probe))


def _measured(
    entered: dict[str, tuple[int, int, list[Call]]], x: Tensor, rounds: int, probe: Probe
) -> Table:
    threads = torch.get_num_threads()
    before = probe.read_bytes(threads)
    seconds: dict[str, list[float]] = {name: [] for name in entered}
    with torch.inference_mode():
        for turn in range(rounds):
            for name, (_, _, calls) in entered.items():
                start = time.perf_counter()
                for step in range(4):
                    calls[(4 * turn + step) % len(calls)](x)
                seconds[name].append((time.perf_counter() - start) / 4)
    after = probe.read_bytes(threads)
    table = Table(title=f"{len(x)} x {_SIZE} x {_SIZE}, bfloat16, {threads} threads")
    for column in _COLUMNS:
        table.add_column(column)
    for name, (bits, held, _) in entered.items():
        took = statistics.median(seconds[name])
        agree = before and after and max(before, after) <= _AGREE * min(before, after)
        speed = (before + after) / 2 if agree and before and after else None
        share = "the probes differ" if speed is None else f"{held / took / speed:.2f}"
        rivals = [n for n, (b, _, _) in entered.items() if b == bits and n.startswith("torch ")]
        times = min(
            statistics.median(
                theirs / ours for theirs, ours in zip(seconds[rival], seconds[name], strict=True)
            )
            for rival in rivals
        )
        # What reading these bytes alone would reach: nothing that reads them can be faster.
        least = min(statistics.median(seconds[rival]) for rival in rivals)
        bound = "" if speed is None else f"{least / (held / speed):.2f}"
        asked = name.startswith("torchyard") and len(x) == 1
        verdict = ("holds" if times >= _ASKED else f"MISSED: asked {_ASKED}") if asked else ""
        rate = 2e-9 * len(x) * _SIZE**2 / took
        table.add_row(name, f"{rate:.0f}", share, f"{times:.2f}", bound, verdict)
    return table


if __name__ == "__main__":
    _main()
