"""Implementations of attention against one another."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, Final

import torch
from torch import Tensor

from benchmarks.accelerators.cases import RaceCase, call_of, torch_backward
from benchmarks.accelerators.libraries import contestants
from benchmarks.accelerators.row import Row, rows_of
from benchmarks.accelerators.timing import Limits, Timer
from torchyard import ContractId, registry
from torchyard_attention.contract import BACKWARD, FORWARD, AttentionCall
from torchyard_attention.testing import request_of
from torchyard_attention.tolerance import Error, GradientRuler, Ruler, report

__all__ = ["race_attention"]

_TORCH: Final = "torch.flex_attention"
# Dense scores in float64: there to be compared with, and too slow to be raced.
_SLOW: Final = ("attention.reference",)
# Products of a backward over those of its forward.
_BACKWARD_WORK: Final = 2.5
# Of results in half precision, over the largest number.
_LONG_DIFFERENCE: Final = 0.03


def _entrants(
    contract: str, call: AttentionCall, *, causal: bool
) -> tuple[dict[str, Callable[..., Any]], str]:
    """Return what supports a call, and the name of what the registry chooses."""
    found = registry()
    request = request_of(call, causal=causal, grad=call.grad)
    chosen = found.decide(contract, request).name
    offered, _ = found.implementations(ContractId.parse(contract), request.device)
    runs = {
        item.name: _loaded(partial(found.load, item))
        for item in offered
        if item.name not in _SLOW and item.verdict(request, found.platform).supported
    }
    return runs, chosen


def _loaded(load: Callable[[], Callable[..., Any]]) -> Callable[..., Any]:
    """Return an implementation; what does not load, as one whose calls end in that error."""
    try:
        return load()
    except Exception as error:
        failure = error

    def fail(*_: Any) -> Any:
        raise failure

    return fail


def race_attention(
    name: str, case: RaceCase, dtype: torch.dtype, rounds: int, timer: Timer, limits: Limits
) -> Iterator[Row]:
    """Yield the rows of a case: of the forward, and of the backward where it is one of training.

    Args:
        name, case: what is computed.
        dtype: of query, key and value.
        rounds: how often each is timed.
        timer: of the device.
        limits: of the device, in this run.
    """
    device = timer.device
    short, _ = call_of(case, dtype=dtype, device=device, shortened=True)
    call, causal = call_of(case, dtype=dtype, device=device)
    call = replace(call, grad=case.training)
    forwards, chosen = _entrants(FORWARD, call, causal=causal)
    ruler = Ruler(short)
    wrong = {
        key: _judged(partial(_compared, ruler.compare, partial(run, short)), partial(run, call))
        for key, run in forwards.items()
    }
    timed: dict[str, Callable[[], Any]] = {key: partial(run, call) for key, run in forwards.items()}
    libraries, absent = contestants(case)
    plain = Ruler(replace(short, lse=False)) if libraries else ruler
    for key, library in libraries.items():
        # What it plans and copies is done once, and is no part of its time.
        few, timed[key] = (_loaded(partial(library.run_of, item, causal)) for item in (short, call))
        wrong[key] = _judged(partial(_compared, plain.compare, few), timed[key])
    _compare_long(timed, wrong)
    times = timer.milliseconds({key: run for key, run in timed.items() if not wrong[key]}, rounds)
    floor = limits.floor(case.operations, case.size)
    yield from rows_of(name, FORWARD, times, wrong, chosen=chosen, floor=floor)
    for key, why in absent.items():
        yield Row(name, FORWARD, key, 0.0, 0.0, 0.0, False, absent=why)
    runs = {key: timed[key] for key in forwards if not wrong[key]}
    if not case.training or not runs:
        return
    forward = runs.get(chosen) or next(iter(runs.values()))
    at = forwards[chosen if chosen in runs else next(iter(runs))]
    backwards, chosen = _entrants(BACKWARD, call, causal=causal)
    bound = [
        (of, result.out, result.lse, torch.randn_like(result.out), None)
        for of, result in ((short, at(short)), (call, forward()))
    ]
    gradients = GradientRuler(short, bound[0][3])
    wrong = {
        key: _judged(
            partial(_compared, gradients.compare, partial(run, *bound[0])), partial(run, *bound[1])
        )
        for key, run in backwards.items()
    }
    timed = {key: partial(run, *bound[1]) for key, run in backwards.items() if not wrong[key]}
    if device != "cpu":
        wrong[_TORCH] = ""
        timed[_TORCH] = torch_backward(case, call, bound[1][3])
    times = timer.milliseconds(timed, rounds)
    floor = limits.floor(case.operations * _BACKWARD_WORK, 2 * case.size)
    yield from rows_of(name, BACKWARD, times, wrong, chosen=chosen, floor=floor)


def _compared(compare: Callable[[Any], list[Error]], run: Callable[[], Any]) -> list[Error]:
    return compare(run())


def _judged(compare: Callable[[], list[Error]], run: Callable[[], Any]) -> str:
    """Return how a result differs, or the error that a call ends in."""
    try:
        errors = compare()
        run()
    except Exception as error:
        line = (str(error).strip().splitlines() or [""])[0][:200]
        return f"{type(error).__name__}: {line}"
    return report(errors) if any(error.ratio > 1 for error in errors) else ""


def _compare_long(runs: Mapping[str, Callable[[], Any]], wrong: dict[str, str]) -> None:
    """Note who differs from the first that is right at the lengths that are timed."""
    first: Tensor | None = None
    for name, run in runs.items():
        if wrong[name]:
            continue
        out = run().out.float()
        if first is None:
            first = out
            continue
        off = float((out - first).abs().max() / first.abs().max())
        if not off <= _LONG_DIFFERENCE:
            wrong[name] = f"differs by {off:.2g} of the largest at the full length"
