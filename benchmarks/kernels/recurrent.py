"""Recurrent layers beside torch's best: its module, and its module in float32 for 16-bit inputs."""

from __future__ import annotations

import itertools
import math
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch import Tensor

import torchyard_kernels
from benchmarks.measuring.findings import Finding, at_least
from benchmarks.measuring.limits import Limits, Probe
from benchmarks.measuring.measure import WrongResultError
from benchmarks.overhead.recurrent_calls import overhead
from torchyard_kernels.recurrent.contract import RecurrentKind, gates

__all__ = ["RecurrentCase", "judged", "measure_recurrent"]

_STEPS: Final = 128
# What a call reads must not be in a cache because the call before it left it there.
_BEYOND_CACHES: Final = 64 << 20
_MOST_COPIES: Final = 8
# A run shorter than this is repeated: the clock counts, and so does waking threads.
_SHORTEST: Final = 5e-3
# Two runs of one contestant differ by so much.
_NOT_SLOWER: Final = 0.95
_TARGET: Final = 2.0
_SMALL: Final = 8
# Both results are draws of the same roundings; ours may be no worse than twice torch's.
_FACTOR: Final = 2.0

_OURS: Final = "torchyard"
_PACKED: Final = "torchyard, packed"
_MODULES: Final[dict[str, Callable[[int, int], torch.nn.RNNBase]]] = {
    "lstm": torch.nn.LSTM,
    "gru": torch.nn.GRU,
    "rnn": torch.nn.RNN,
}


@dataclass(frozen=True, slots=True)
class RecurrentCase:
    """One layer with as many inputs as units, in inference.

    Attributes:
        kind: lstm, gru or rnn.
        dtype: of everything.
        hidden: units.
        batch: sequences.
        asked: how many times torch's best speed is asked; None: nothing is.
        steps: per call; of a single one it is asked with packed weights.
    """

    kind: str
    dtype: torch.dtype
    hidden: int
    batch: int
    asked: float | None = None
    steps: int = _STEPS

    @property
    def name(self) -> str:
        """The case in words."""
        steps = "" if self.steps == _STEPS else f" {self.steps} steps"
        return f"{self.kind} {str(self.dtype)[6:]} {self.hidden} batch {self.batch}{steps}"

    @property
    def module(self) -> torch.nn.RNNBase:
        """A layer of torch with random weights, the same for the same case."""
        torch.manual_seed(0)
        return _MODULES[self.kind](self.hidden, self.hidden).to(self.dtype).eval()

    def state(self) -> Any:
        """Return a state of zeros, as the layer takes it."""
        hidden = torch.zeros(1, self.batch, self.hidden, dtype=self.dtype)
        return (hidden, hidden.clone()) if self.kind == "lstm" else hidden

    def inputs(self) -> Tensor:
        """Return the input, [T, B, H]."""
        generator = torch.Generator().manual_seed(1)
        shape = (self.steps, self.batch, self.hidden)
        return torch.randn(shape, generator=generator).to(self.dtype)


def _cases(quick: bool) -> Iterator[RecurrentCase]:
    half, low, single = torch.float16, torch.bfloat16, torch.float32
    asked = [("gru", low), ("gru", half), ("lstm", half)]
    held = [("lstm", single), ("lstm", low)]
    free = [("gru", single), ("rnn", low), ("rnn", half)]
    for hidden in (256, 1024):
        for batch in (1, 8, 64):
            if quick and hidden * batch > 1 << 13:
                continue
            bar = _TARGET if batch <= _SMALL else 1.0
            yield from (RecurrentCase(*kind, hidden, batch, bar) for kind in asked)
            yield from (RecurrentCase(*kind, hidden, batch, _NOT_SLOWER) for kind in held)
            if hidden == 256:
                yield from (RecurrentCase(*kind, hidden, batch) for kind in free)
    for kind in (*asked, ("gru", single), ("lstm", single)):
        yield RecurrentCase(*kind, 256, 1, _TARGET, steps=1)


def measure_recurrent(*, quick: bool, progress: Callable[[str], None]) -> list[Finding]:
    """Judge and time each case; all contestants of a case take turns.

    Args:
        quick: few rounds, and no large case.
        progress: receives the name of each step.
    """
    findings: list[Finding] = []
    with Probe() as probe:
        limits = probe.limits(torch.get_num_threads())
    for case in _cases(quick):
        progress(case.name)
        findings += _measured(case, limits, 3 if quick else 15, 0.5 if quick else 2.5)
    progress("tiny calls")
    tiny = [("lstm", dtype) for dtype in (torch.float32, torch.bfloat16, torch.float16)]
    for kind, dtype in (*tiny, ("gru", torch.float16)):
        case = RecurrentCase(kind, dtype, 16, 1, steps=8)
        findings += overhead(case.name, case.module, case.inputs(), case.state(), quick=quick)
    return findings


def _contestants(case: RecurrentCase, module: torch.nn.RNNBase) -> dict[str, Callable[..., Any]]:
    """Return what runs a call, by name: torch's ways, then ours with and without packed weights."""
    state = case.state()
    ways: dict[str, Callable[..., Any]] = {"torch": lambda x: module(x, state)}
    if case.dtype != torch.float32:
        wide = _MODULES[case.kind](case.hidden, case.hidden).eval()
        wide.load_state_dict(module.state_dict())
        ways["torch in float32"] = lambda x: (wide(x.float())[0].to(case.dtype),)
    weights = list(module.parameters())
    function = getattr(torchyard_kernels, case.kind)
    ways[_OURS] = lambda x: function(x, state, weights)
    packed = torchyard_kernels.nn.from_torch(module).prepack()
    ways[_PACKED] = lambda x: packed(x, state)
    return ways


def judged(case: RecurrentCase, ways: dict[str, Callable[..., Any]]) -> dict[str, float]:
    """Return each contestant's root mean square error over that of the exact output.

    Raises:
        WrongResultError: one of ours is further from float64 than torch's worst allows.
    """
    x, module = case.inputs(), case.module
    exact = module.double()(x.double())[0]
    size = float(exact.square().mean().sqrt())
    errors = {
        name: float((way(x)[0].double() - exact).square().mean().sqrt()) / size
        for name, way in ways.items()
    }
    theirs = max(error for name, error in errors.items() if not name.startswith(_OURS))
    allowed = _FACTOR * theirs + torch.finfo(torch.float32).eps
    for name, error in errors.items():
        if name.startswith(_OURS) and not error <= allowed:
            raise WrongResultError(
                f"{case.name}, {name}: expected within {allowed:.2e} of float64, got {error:.2e}"
            )
    return errors


@torch.no_grad()
def _measured(
    case: RecurrentCase, limits: Limits, rounds: int, seconds: float
) -> Iterator[Finding]:
    module = case.module
    errors = judged(case, _contestants(case, module))
    size = sum(parameter.nbytes for parameter in module.parameters())
    copies = max(2, min(_MOST_COPIES, math.ceil(_BEYOND_CACHES / size)))
    ways = [_contestants(case, case.module) for _ in range(copies)]
    times = _timed(ways, case.inputs(), rounds, seconds)
    rivals = [name for name in times if not name.startswith(_OURS)]
    for name, taken in times.items():
        yield Finding(case.name, name, "us per call", statistics.median(taken) * 1e6)
        yield Finding(
            case.name, name, "relative error against float64, root mean square", errors[name]
        )
    yield from _bound(case, limits, min(statistics.median(times[name]) for name in rivals))
    judged_by = _PACKED if case.steps == 1 else _OURS
    for name in sorted(set(times) - set(rivals)):
        ratios = [
            min(times[rival][turn] for rival in rivals) / times[name][turn]
            for turn in range(len(times[name]))
        ]
        ratio, quantity = statistics.median(ratios), "times torch's best speed"
        if case.asked is None or name != judged_by:
            yield Finding(case.name, name, quantity, ratio)
        else:
            yield at_least(case.name, name, quantity, ratio, case.asked)


def _bound(case: RecurrentCase, limits: Limits, best: float) -> Iterator[Finding]:
    """Yield how many times torch's best speed the products alone allow on this machine."""
    # What nothing multiplies as it is is multiplied in float32.
    peak = limits.flops(case.dtype)
    if peak is None or case.asked is None or case.steps == 1:
        return
    kind = RecurrentKind(case.kind)
    products = case.steps * case.batch * gates(kind) * case.hidden * 2 * case.hidden
    yield Finding(
        case.name, "the processor's peak", "times torch's best speed", best * peak / (2 * products)
    )


def _timed(
    ways: list[dict[str, Callable[..., Any]]], x: Tensor, rounds: int, seconds: float
) -> dict[str, list[float]]:
    """Return each contestant's seconds per call and round; copies of the weights take turns.

    Before its turn each runs once untimed: what ran before leaves caches, threads and the
    allocator as it used them, and would be counted with who comes next.
    """
    turns = {name: itertools.cycle([way[name] for way in ways]) for name in ways[0]}

    def run(name: str) -> float:
        way = next(turns[name])
        start = time.perf_counter()
        way(x)
        return time.perf_counter() - start

    repeats = {}
    for name in turns:
        run(name)
        repeats[name] = max(1, min(500, int(_SHORTEST / max(run(name), 1e-9))))
    times: dict[str, list[float]] = {name: [] for name in turns}
    start = time.perf_counter()
    for done in range(rounds):
        if done >= 3 and time.perf_counter() - start > seconds:
            break
        for name, taken in times.items():
            run(name)
            taken.append(sum(run(name) for _ in range(repeats[name])) / repeats[name])
    return times
