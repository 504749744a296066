"""Implementations of a kernel's contract, and torch's functions, against one another."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from contextvars import copy_context
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
    with ExitStack() as stack:
        runs: dict[str, Callable[[], Any]] = {_CHOSEN: case.run}
        if case.contract:
            contract = ContractId.parse(case.contract)
            offered, _ = registry().implementations(contract, timer.device)
            runs |= {
                item.name: _demanded(contract.op, item.name, case, stack)
                for item in offered
                # Those in float64 are there to be compared with, and take seconds.
                if not item.name.endswith("reference")
            }
        runs |= case.peers
        wrong = {key: told for key, run in runs.items() if (told := _told(case, run)) is not None}
        right = {contestant: runs[contestant] for contestant, told in wrong.items() if not told}
        times = timer.milliseconds(right, rounds)
    floor = limits.floor(case.operations, case.size)
    yield from rows_of(name, case.contract, times, wrong, chosen=_CHOSEN, floor=floor)


def _told(case: OpCase, run: Callable[[], Any]) -> str | None:
    """Return how a result differs, or the error in place of one; None where it is refused."""
    try:
        return case.wrong(run())
    except UnsupportedError:
        return None
    except Exception as error:
        line = (str(error).strip().splitlines() or [""])[0][:200]
        return f"{type(error).__name__}: {line}"


def _demanded(op: str, implementation: str, case: OpCase, stack: ExitStack) -> Callable[[], Any]:
    """Return a call in a context that demands an implementation: entering it costs as much."""
    context, demand = copy_context(), use(**{op: implementation})
    context.run(demand.__enter__)
    stack.callback(context.run, demand.__exit__, None, None, None)
    return partial(context.run, case.run)
