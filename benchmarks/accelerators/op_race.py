"""Implementations of a kernel's contract, and torch's functions, against one another."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Final

from benchmarks.accelerators.ops import OpCase
from benchmarks.accelerators.row import Row, rows_of
from benchmarks.accelerators.timing import Limits, Timer
from torchyard import ContractId, UnsupportedError, registry, use

__all__ = ["race_op"]

# What a user's call runs without a demand.
_CHOSEN: Final = "the registry's"


def race_op(name: str, case: OpCase, rounds: int, timer: Timer, limits: Limits) -> Iterator[Row]:
    """Yield the rows of a case.

    Args:
        name, case: what is computed.
        rounds: how often each contestant is timed.
        timer: of the device.
        limits: of the device, in this run.
    """
    runs: dict[str, Callable[[], Any]] = {_CHOSEN: case.run}
    if case.contract:
        contract = ContractId.parse(case.contract)
        offered, _ = registry().implementations(contract, timer.device)
        runs |= {item.name: partial(_demanded, contract.op, item.name, case) for item in offered}
    runs |= case.peers
    wrong = {}
    for contestant, run in runs.items():
        try:
            wrong[contestant] = case.wrong(run())
        except UnsupportedError:
            continue
        except Exception as error:
            line = (str(error).strip().splitlines() or [""])[0][:200]
            wrong[contestant] = f"{type(error).__name__}: {line}"
    right = {contestant: runs[contestant] for contestant, told in wrong.items() if not told}
    times = timer.milliseconds(right, rounds)
    floor = limits.floor(case.operations, case.size)
    yield from rows_of(name, case.contract, times, wrong, chosen=_CHOSEN, floor=floor)


def _demanded(op: str, implementation: str, case: OpCase) -> Any:
    with use(**{op: implementation}):
        return case.run()
