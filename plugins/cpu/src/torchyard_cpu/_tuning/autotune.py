"""``torchyard autotune``: measure the tunables of the native kernels on this machine.

Each candidate takes turns with the defaults, and counts only if it wins nearly every turn: what
another program takes from the machine falls on both.
"""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import date
from typing import Any, Final, TypeAlias

import click
import torch
from rich.console import Console
from rich.progress import Progress
from rich.table import Table
from torch import Tensor

from torchyard_attention.contract import AttentionCall
from torchyard_cpu import _native
from torchyard_cpu._tuning.machine_file import machine, store
from torchyard_cpu._tuning.tunables import Tunables, frozen
from torchyard_cpu.attention import DTYPES
from torchyard_cpu.attention._backward import NativeBackward
from torchyard_cpu.attention._forward import NativeForward, kernels_of

__all__ = ["Finding", "command", "measure"]

Options: TypeAlias = tuple[tuple[str, int], ...]

# A candidate replaces the default only if it is this much faster, in this share of the turns.
_GAIN: Final = 1.03
_WINS: Final = 0.8

_DTYPES: Final = tuple(getattr(torch, name) for name in DTYPES)


@dataclass(frozen=True, slots=True)
class _Search:
    """One tunable's candidates and the call that shows their speed.

    Attributes:
        tunable: its name.
        candidates: values beside the default.
        select: _native's selection of the kernel that it belongs to.
        call: given a dtype and a share of full size, a function of a call's options.
    """

    tunable: str
    candidates: tuple[int, ...]
    select: Callable[[str, frozenset[str], str | None], str | None]
    call: Callable[[torch.dtype, float], Callable[[Options], object]]


@dataclass(frozen=True, slots=True)
class Finding:
    """What one search found.

    Attributes:
        kernel: the kernel's name.
        tunable: the tunable's name.
        default: its value in the table of defaults.
        best: the fastest value, the default where no other is clearly faster.
        gain: median time with the default over median time with ``best``.
    """

    kernel: str
    tunable: str
    default: int
    best: int
    gain: float


def measure(turns: int, size: float) -> Iterator[Finding]:
    """Search each tunable for each dtype.

    Args:
        turns: how often each candidate is compared with the default.
        size: share of the full lengths, for quicker and coarser answers.
    """
    features = frozenset(_native.cpu_features())
    for search in _SEARCHES:
        for dtype, (kernel, _) in kernels_of(search.select, features).items():
            default = getattr(frozen(kernel.rpartition("_")[2]), search.tunable)
            run = search.call(dtype, size)
            best, gain = default, 1.0
            for candidate in search.candidates:
                if candidate == default:
                    continue
                ratios = _compare(run, search.tunable, default, candidate, turns)
                wins = sum(ratio > 1.0 for ratio in ratios) / len(ratios)
                median = statistics.median(ratios)
                if median >= max(_GAIN, gain) and wins >= _WINS:
                    best, gain = candidate, median
            yield Finding(kernel, search.tunable, default, best, gain)


def _compare(
    run: Callable[[Options], object], tunable: str, default: int, candidate: int, turns: int
) -> list[float]:
    """Return the default's time over the candidate's, per turn."""
    options = [((f"cpu.{tunable}", value),) for value in (default, candidate)]
    for option in options:
        run(option)
    ratios = []
    for turn in range(turns):
        times = [0.0, 0.0]
        # Whoever comes second finds warmer caches: take turns at that too.
        for which in (0, 1) if turn % 2 else (1, 0):
            start = time.perf_counter()
            run(options[which])
            times[which] = time.perf_counter() - start
        ratios.append(times[0] / times[1])
    return ratios


def _prefill(dtype: torch.dtype, size: float) -> Callable[[Options], object]:
    forward, length = NativeForward(""), max(128, int(2048 * size))
    inputs = _inputs(dtype, (1, 8, length, 64), (1, 8, length, 64))
    return lambda options: forward(_call(*inputs, options))


def _decoding(dtype: torch.dtype, size: float) -> Callable[[Options], object]:
    forward, length = NativeForward(""), max(512, int(16384 * size))
    inputs = _inputs(dtype, (1, 32, 1, 128), (1, 8, length, 128))
    return lambda options: forward(_call(*inputs, options))


def _training(dtype: torch.dtype, size: float) -> Callable[[Options], object]:
    backward, length = NativeBackward(""), max(128, int(2048 * size))
    inputs = _inputs(dtype, (1, 4, length, 64), (1, 4, length, 64))
    result = NativeForward("")(_call(*inputs, ()))
    assert result.lse is not None
    out, lse, grad = result.out, result.lse, torch.ones_like(result.out)
    return lambda options: backward(_call(*inputs, options), out, lse, grad, None)


def _inputs(
    dtype: torch.dtype, query: tuple[int, ...], key: tuple[int, ...]
) -> tuple[Tensor, Tensor, Tensor]:
    return torch.randn(query).to(dtype), torch.randn(key).to(dtype), torch.randn(key).to(dtype)


def _call(query: Tensor, key: Tensor, value: Tensor, options: Options) -> AttentionCall:
    scale = query.shape[3] ** -0.5
    return AttentionCall(query, key, value, None, None, scale, True, False, options)


_SEARCHES: Final = (
    _Search("rows_per_item", (64, 96, 192, 256, 384), _native.select_kernel, _prefill),
    _Search("keys_per_split", (256, 1024, 2048), _native.select_decode, _decoding),
    _Search("backward_rows", (66, 96, 198, 264), _native.select_backward_kernel, _training),
    _Search(
        "backward_bytes",
        (360 << 10, 512 << 10, 1024 << 10, 1536 << 10),
        _native.select_backward_kernel,
        _training,
    ),
)


@click.command()
@click.option("--turns", default=15, show_default=True, help="Comparisons per candidate.")
@click.option("--size", default=1.0, show_default=True, help="Share of the full lengths.")
@click.option("--dry-run", is_flag=True, help="Show what was found and keep nothing.")
@click.option("--json", "as_json", is_flag=True, help="Write JSON.")
def command(turns: int, size: float, dry_run: bool, as_json: bool) -> None:
    """Measure the native kernels' tunables on this machine and keep what is clearly faster."""
    if turns < 1 or not 0.0 < size <= 1.0:
        raise click.BadParameter("expected turns of at least 1 and a size in (0, 1]")
    found = []
    console = Console(stderr=True)
    with Progress(console=console, disable=as_json) as progress:
        task = progress.add_task("measuring", total=len(_SEARCHES) * len(_DTYPES))
        for finding in measure(turns, size):
            found.append(finding)
            progress.update(task, advance=1, description=f"{finding.tunable} of {finding.kernel}")
    features = frozenset(_native.cpu_features())
    file = None if dry_run else store(_entries(found), features)
    if as_json:
        rows = [{name: getattr(f, name) for name in Finding.__slots__} for f in found]
        kept = None if file is None else str(file)
        click.echo(json.dumps({"machine": machine(features), "file": kept, "found": rows}))
        return
    table = Table("kernel", "tunable", "default", "best", "faster by")
    for f in found:
        table.add_row(f.kernel, f.tunable, str(f.default), str(f.best), f"{f.gain - 1.0:.1%}")
    Console().print(table)
    click.echo("kept nothing (--dry-run)" if file is None else f"kept in {file}")


def _entries(found: list[Finding]) -> dict[str, dict[str, Any]]:
    """Return the file's entries: what differs from the defaults; an empty one says measured."""
    entries: dict[str, dict[str, Any]] = {}
    for finding in found:
        entry = entries.setdefault(
            finding.kernel, {"tunables": {}, "gain": {}, "date": date.today().isoformat()}
        )
        assert finding.tunable in Tunables._fields
        if finding.best != finding.default:
            entry["tunables"][finding.tunable] = finding.best
            entry["gain"][finding.tunable] = round(finding.gain, 3)
    return entries
