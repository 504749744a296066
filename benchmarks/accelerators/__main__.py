"""``python -m benchmarks.accelerators [CASE ...] [--device cuda] [--json FILE] [--quick]``

Every implementation of attention that supports a case on the device is judged against float64 on a
shortened call and then timed, all in alternation. The exit status is 1 where a result is wrong, or
where what the registry chooses takes more than a twentieth longer than the fastest.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

import torch

from benchmarks.accelerators.cases import CASES, RaceCase, call_of
from torchyard import ContractId, registry
from torchyard_attention.contract import BACKWARD, FORWARD, AttentionCall
from torchyard_attention.testing import request_of
from torchyard_attention.tolerance import Error, GradientRuler, Ruler, report

__all__: list[str] = []

_BEHIND: Final = 1.05
# Dense scores in float64: there to be compared with, and too slow to be raced.
_SLOW: Final = ("attention.reference",)
# Products of a backward over those of its forward.
_BACKWARD_WORK: Final = 2.5


@dataclass(frozen=True, slots=True)
class Row:
    """One implementation on one case.

    Attributes:
        case, contract, implementation: what ran.
        milliseconds: the median.
        behind: its time over the fastest's.
        teraflops: multiplications and additions of visible pairs a second.
        chosen: whether the registry chooses it.
        wrong: how its result differs from float64; empty where it does not.
    """

    case: str
    contract: str
    implementation: str
    milliseconds: float
    behind: float
    teraflops: float
    chosen: bool
    wrong: str = ""


def _entrants(
    contract: str, call: AttentionCall, *, causal: bool
) -> tuple[dict[str, Callable[..., Any]], str]:
    """Return what supports a call, and the name of what the registry chooses."""
    found = registry()
    request = request_of(call, causal=causal, grad=call.grad)
    chosen = found.decide(contract, request).name
    offered, _ = found.implementations(ContractId.parse(contract), request.device)
    runs = {
        item.name: found.load(item)
        for item in offered
        if item.name not in _SLOW and item.verdict(request, found.platform).supported
    }
    return runs, chosen


def _milliseconds(runs: Mapping[str, Callable[[], Any]], rounds: int) -> dict[str, float]:
    """Return the median of each, all in alternation."""
    times: dict[str, list[float]] = {name: [] for name in runs}
    for attempt in range(rounds + 1):
        for name, run in runs.items():
            _wait()
            begun = time.perf_counter()
            run()
            _wait()
            # The first run compiles, and finds memory.
            if attempt:
                times[name].append((time.perf_counter() - begun) * 1e3)
    return {name: statistics.median(found) for name, found in times.items()}


def _wait() -> None:
    if torch.accelerator.is_available():
        torch.accelerator.synchronize()


def _wrong(errors: list[Error]) -> str:
    return report(errors) if any(error.ratio > 1 for error in errors) else ""


def _rows(
    name: str,
    contract: str,
    runs: Mapping[str, Callable[[], Any]],
    wrong: Mapping[str, str],
    *,
    chosen: str,
    operations: float,
    rounds: int,
) -> Iterator[Row]:
    times = _milliseconds({key: run for key, run in runs.items() if not wrong[key]}, rounds)
    best = min(times.values(), default=0.0)
    for key in runs:
        spent = times.get(key, 0.0)
        rate = operations / spent / 1e9 if spent else 0.0
        behind = spent / best if spent else 0.0
        yield Row(name, contract, key, spent, behind, rate, key == chosen, wrong[key])


def _race(name: str, case: RaceCase, device: str, dtype: torch.dtype, rounds: int) -> Iterator[Row]:
    short, _ = call_of(case, dtype=dtype, device=device, shortened=True)
    call, causal = call_of(case, dtype=dtype, device=device)
    call = replace(call, grad=case.training)
    forwards, chosen = _entrants(FORWARD, call, causal=causal)
    ruler = Ruler(short)
    wrong = {key: _wrong(ruler.compare(run(short))) for key, run in forwards.items()}
    runs = {key: partial(run, call) for key, run in forwards.items()}
    work = case.operations
    yield from _rows(name, FORWARD, runs, wrong, chosen=chosen, operations=work, rounds=rounds)
    if not case.training:
        return
    forward = forwards[chosen]
    backwards, chosen = _entrants(BACKWARD, call, causal=causal)
    results = [(of, forward(of)) for of in (short, call)]
    bound = [
        (of, result.out, result.lse, torch.ones_like(result.out), None) for of, result in results
    ]
    gradients = GradientRuler(short, bound[0][3])
    wrong = {key: _wrong(gradients.compare(run(*bound[0]))) for key, run in backwards.items()}
    runs = {key: partial(run, *bound[1]) for key, run in backwards.items()}
    work *= _BACKWARD_WORK
    yield from _rows(name, BACKWARD, runs, wrong, chosen=chosen, operations=work, rounds=rounds)


def _main() -> int:
    parser = argparse.ArgumentParser(prog="benchmarks.accelerators", description=__doc__)
    parser.add_argument("cases", nargs="*", metavar="CASE", help=", ".join(CASES))
    parser.add_argument("--device", default="cuda", help="torch device type")
    parser.add_argument("--dtype", default="bfloat16", help="of query, key and value")
    parser.add_argument("--rounds", type=int, default=10, help="timed runs of each")
    parser.add_argument("--json", type=Path, help="write the rows there")
    parser.add_argument("--quick", action="store_true", help="short calls; the times mean nothing")
    options = parser.parse_args()
    found: list[Row] = []
    for name in options.cases or CASES:
        case = CASES[name]
        if options.quick:
            keys = min(case.kv_length, 200)
            case = replace(case, q_length=min(case.q_length, 200), kv_length=keys)
        dtype = getattr(torch, options.dtype)
        rounds = 2 if options.quick else options.rounds
        for row in _race(name, case, options.device, dtype, rounds):
            found.append(row)
            mark = "*" if row.chosen else " "
            print(
                f"{row.case:10} {row.contract:22} {mark}{row.implementation:18} "
                f"{row.milliseconds:9.3f} ms {row.behind:6.2f} x {row.teraflops:7.1f} TFLOP/s"
                f"{f'  WRONG: {row.wrong}' if row.wrong else ''}",
                flush=True,
            )
    if options.json is not None:
        text = json.dumps([asdict(row) for row in found], indent=1)
        options.json.write_text(f"{text}\n", encoding="utf-8")
    wrong = [row for row in found if row.wrong]
    behind = [row for row in found if row.chosen and row.behind > _BEHIND]
    print(f"{len(found)} rows, {len(wrong)} wrong, {len(behind)} choices behind by more than 5 %")
    slow = bool(behind) and not options.quick
    return 1 if wrong or slow or not found else 0


if __name__ == "__main__":
    sys.exit(_main())
