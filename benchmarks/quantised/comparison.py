"""``python -m benchmarks.quantised [--rows M ...] [--rounds N] [--openvino PYTHON]``

Products with weights of 8 and 4 bits, 4096 x 4096, beside torch's packed operators, and beside
OpenVINO's where an interpreter that has it is named. Weights take turns, so that they come from
memory; contestants take turns in each round.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Protocol, Self

import numpy as np
import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor

from benchmarks.measuring.limits import Probe
from torchyard_kernels import linear, quantize

__all__ = ["contestants", "main"]

_SIZE: Final = 4096
_GROUP: Final = 32
# Beyond any cache, of each contestant's weights.
_BYTES: Final = 192 << 20
_TARGET: Final = 1.8
# Of a turn that are timed, and as many before them that are not.
_CALLS: Final = 4
# Two probes of the memory that differ by more say nothing.
_AGREE: Final = 1.15
_COLUMNS: Final = (
    *("contestant", "GFLOP/s", "share of memory's speed", "times torch's best"),
    *("at memory's speed it would be", ""),
)

Call = Callable[[Tensor], Tensor]


class Contestant(Protocol):
    """Who multiplies by a rounded weight.

    Attributes:
        bits: of the weight's codes.
        held: bytes of one copy of it.
    """

    bits: int
    held: int

    def product(self, x: Tensor) -> Tensor:
        """Return one product."""

    def seconds(self, x: Tensor, turn: int) -> float:
        """Return the seconds of one product, by several with other copies of the weight."""


class _Calls:
    """One that runs here, by a call for each copy of the weight."""

    def __init__(self, bits: int, held: int, calls: list[Call]) -> None:
        self.bits, self.held, self._calls = bits, held, calls

    def product(self, x: Tensor) -> Tensor:
        return self._calls[0](x)

    def seconds(self, x: Tensor, turn: int) -> float:
        # Untimed first: who ran before leaves threads asleep and caches as it used them.
        for step in range(-_CALLS, 0):
            self._call(turn, step, x)
        start = time.perf_counter()
        for step in range(_CALLS):
            self._call(turn, step, x)
        return (time.perf_counter() - start) / _CALLS

    def _call(self, turn: int, step: int, x: Tensor) -> None:
        self._calls[(_CALLS * turn + step) % len(self._calls)](x)


class _OpenVino:
    """OpenVINO, in a process of its own; its copies are multiplied one behind another.

    Args:
        python: an interpreter that has it.
        folder: for files.
        bits, activation: of codes; whether x becomes bytes too.
    """

    def __init__(self, python: str, folder: Path, bits: int, activation: int) -> None:
        self.bits, self.held = bits, 0
        self._folder, self._rows = folder, 0
        copies = _BYTES // (_SIZE * _SIZE * bits // 8)
        words = (bits, _GROUP if bits == 4 else 0, activation, copies, torch.get_num_threads())
        self._process = subprocess.Popen(
            [
                python,
                "-m",
                "benchmarks.quantised.openvino_products",
                f"{folder}/w.npy",
                *map(str, words),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._process.kill()
        self._process.wait()

    def product(self, x: Tensor) -> Tensor:
        self._be_ready(x)
        self._ask(f"check {self._folder}/x.npy {self._folder}/out.npy")
        found: Tensor = torch.from_numpy(np.load(self._folder / "out.npy"))
        return found

    def seconds(self, x: Tensor, turn: int) -> float:
        return self._ask(f"time {self._folder}/x.npy")

    def _be_ready(self, x: Tensor) -> None:
        np.save(self._folder / "x.npy", x.float().numpy())
        if len(x) != self._rows:
            self._rows, self.held = len(x), int(self._ask(f"rows {len(x)}"))

    def _ask(self, command: str) -> float:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{command}\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"openvino: its process ended: {self._process.wait()}")
        return float(json.loads(line))


def contestants() -> dict[str, Contestant]:
    """Return name -> who runs in this process."""
    weight = _weight()
    found: dict[str, Contestant] = {}
    for bits, group in ((8, 0), (4, _GROUP)):
        for activation in (None, "int8"):
            packed = quantize(weight, bits=bits, group_size=group, activation=activation)  # type: ignore[arg-type]
            held = sum(tensor.nbytes for tensor in packed.tensors)
            copies = [packed]
            while len(copies) * held < _BYTES:
                copies.append(type(packed).from_state(_cloned(packed.state_dict())))
            name = f"torchyard int{bits}" + (" x int8" if activation else "")
            found[name] = _Calls(bits, held, [_ours(copy) for copy in copies])
    found |= _torchs(weight)
    return found


def _weight() -> Tensor:
    generator = torch.Generator().manual_seed(0)
    # A chain of products keeps the size of x.
    return (torch.randn(_SIZE, _SIZE, generator=generator) / math.sqrt(_SIZE)).bfloat16()


def _openvinos(python: str, folder: Path, stack: ExitStack) -> dict[str, Contestant]:
    """Return name -> OpenVINO, with x as it is and with x of bytes."""
    np.save(folder / "w.npy", _weight().float().numpy())
    return {
        f"openvino int{bits}" + (" x int8" if activation else ""): stack.enter_context(
            _OpenVino(python, folder, bits, activation)
        )
        for bits in (8, 4)
        for activation in (0, 1)
    }


def _cloned(state: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: tensor.clone() for name, tensor in state.items()}


def _ours(packed: Any) -> Call:
    return lambda x: linear(x, packed)


def _torchs(weight: Tensor) -> dict[str, Contestant]:
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
        "torch int8pack": _Calls(
            8,
            codes.nbytes,
            [lambda x, w=copy: aten._weight_int8pack_mm(x, w, low) for copy in eight],  # type: ignore[misc]
        ),
        "torch dynamic int8": _Calls(
            8,
            codes.nbytes,
            [lambda x, m=copy: m(x.float()).to(x.dtype) for copy in dynamic],  # type: ignore[misc]
        ),
        "torch int4pack": _Calls(
            4,
            four.nbytes,
            [
                lambda x, w=copy: aten._weight_int4pack_mm_for_cpu(x, w, _GROUP, pairs)  # type: ignore[misc]
                for copy in fours
            ],
        ),
    }


def _check(name: str, contestant: Contestant, x: Tensor, weight: Tensor) -> None:
    """Raise AssertionError where a contestant's result is not that of the weight, rounded."""
    exact = x.double() @ weight.double().T
    error = float((contestant.product(x).double() - exact).norm() / exact.norm())
    most = {8: 0.03, 4: 0.12}[contestant.bits]
    if not error <= most:
        raise AssertionError(f"{name}: expected an error of at most {most}, got {error:.3f}")


def main() -> None:
    parser = argparse.ArgumentParser(prog="benchmarks.quantised", description=__doc__)
    parser.add_argument("--rows", type=int, nargs="+", default=[1])
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--openvino", metavar="PYTHON", help="an interpreter that has openvino")
    arguments = parser.parse_args()
    console = Console(width=None if sys.stdout.isatty() else 120)
    entered, weight = contestants(), _weight()
    with Probe() as probe, ExitStack() as stack:
        if arguments.openvino:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            entered |= _openvinos(arguments.openvino, folder, stack)
        for rows in arguments.rows:
            x = torch.randn(rows, _SIZE, generator=torch.Generator().manual_seed(1)).bfloat16()
            for name, contestant in entered.items():
                _check(name, contestant, x, weight)
            console.print(_measured(entered, x, arguments.rounds, probe))


def _measured(entered: dict[str, Contestant], x: Tensor, rounds: int, probe: Probe) -> Table:
    threads = torch.get_num_threads()
    before = probe.read_bytes(threads)
    seconds: dict[str, list[float]] = {name: [] for name in entered}
    with torch.inference_mode():
        for turn in range(rounds):
            for name, contestant in entered.items():
                seconds[name].append(contestant.seconds(x, turn))
    after = probe.read_bytes(threads)
    known, unknown = None, "not measured"
    if before and after:
        agree = max(before, after) <= _AGREE * min(before, after)
        known, unknown = (before + after) / 2 if agree else None, "the probes differ"
    table = Table(title=f"{len(x)} x {_SIZE} x {_SIZE}, bfloat16, {threads} threads")
    for column in _COLUMNS:
        table.add_column(column)
    for name, contestant in entered.items():
        took = statistics.median(seconds[name])
        share = unknown if known is None else f"{contestant.held / took / known:.2f}"
        rivals = [
            rival
            for rival, other in entered.items()
            if other.bits == contestant.bits and rival.startswith("torch ")
        ]
        times = min(
            statistics.median(
                theirs / ours for theirs, ours in zip(seconds[rival], seconds[name], strict=True)
            )
            for rival in rivals
        )
        # What reading these bytes alone would reach: nothing that reads them can be faster.
        least = min(statistics.median(seconds[rival]) for rival in rivals)
        bound = "" if known is None else f"{least / (contestant.held / known):.2f}"
        asked = name.startswith("torchyard") and len(x) == 1
        verdict = ("holds" if times >= _TARGET else f"MISSED: asked {_TARGET}") if asked else ""
        rate = 2e-9 * len(x) * _SIZE**2 / took
        table.add_row(name, f"{rate:.0f}", share, f"{times:.2f}", bound, verdict)
    return table
