"""``probe``: try operators on a device, and compare what they give with the CPU's."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

import torch
from torch import Tensor

from torchyard import arguments
from torchyard_mps.operators._calls import Call, recorded
from torchyard_mps.operators._programs import PROGRAMS

__all__ = ["Outcome", "Support", "probe"]

# Of the largest value, in float32.
_TOLERANCE: Final = 2e-4
_REPEATS: Final = 3


class Support(StrEnum):
    """Where an operator is computed, and whether it is right."""

    NATIVE = "native"
    OURS = "ours"
    CPU = "falls to the CPU"
    MISSING = "missing"
    FAILS = "fails"
    WRONG = "wrong"


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of trying an operator.

    Attributes:
        operator: its name in the table.
        support: where it is computed, and whether it is right.
        text: what torch said, how far the result is off, or which kernels of ours were called.
        ratio: time of a call over the CPU's, at the table's small sizes; 0 where it did not run.
    """

    operator: str
    support: Support
    text: str
    ratio: float = 0.0


def probe(
    device: str, programs: Mapping[str, Callable[[Callable[[Tensor], Tensor]], Any]] = PROGRAMS
) -> tuple[Outcome, ...]:
    """Try operators on a device.

    Args:
        device: a torch device that is there.
        programs: name -> a program, which is given the function that puts a tensor on the device.

    Raises:
        TypeError, ValueError: it is no device.
    """
    where = arguments.device("probe", "device", device)
    return tuple(_tried(name, program, where) for name, program in sorted(programs.items()))


def on_cpu(tensor: Tensor) -> Tensor:
    """Return a tensor as it is made: what the CPU's run of a program is given."""
    return tensor


def _tried(name: str, program: Callable[..., Any], device: torch.device) -> Outcome:
    expected = program(on_cpu)

    def run() -> Tensor:
        result: Tensor = program(lambda tensor: tensor.to(device))
        # A number that is read waits for the device.
        return result.detach().cpu()

    with all_warnings() as said, recorded() as calls:
        try:
            found = run()
        except (NotImplementedError, TypeError) as error:
            # TypeError: of a dtype that the device does not have.
            return Outcome(name, Support.MISSING, _first_sentence(error))
        except (RuntimeError, IndexError) as error:
            return Outcome(name, Support.FAILS, _first_sentence(error))
        ratio = _time(run) / max(_time(lambda: program(on_cpu)), 1e-9)
    off = _distance(found, expected)
    fallback = [str(one.message) for one in said if "fall back" in str(one.message)]
    if off is not None:
        return Outcome(name, Support.WRONG, off, ratio)
    if fallback:
        return Outcome(name, Support.CPU, fallback[0].partition(" (")[0], ratio)
    if calls:
        return Outcome(name, Support.OURS, _kernels(calls), ratio)
    return Outcome(name, Support.NATIVE, "", ratio)


@contextmanager
def all_warnings() -> Iterator[list[warnings.WarningMessage]]:
    """Record warnings, and also those that torch gives once in a process, such as of fallbacks."""
    before = torch.is_warn_always_enabled()
    torch.set_warn_always(True)
    try:
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            yield said
    finally:
        torch.set_warn_always(before)


def _kernels(calls: list[Call]) -> str:
    """Return which kernels of ours were called, and what they copied, in bytes."""
    copied = {call.operator: call.copied for call in calls}
    return ", ".join(
        f"aten::{operator}" + (f" on the CPU, {size} bytes copied" if size else "")
        for operator, size in copied.items()
    )


def _first_sentence(error: Exception) -> str:
    return str(error).partition("\n")[0].partition(". ")[0]


def _distance(found: Tensor, expected: Tensor) -> str | None:
    """Return how a result differs from the CPU's; None where it does not."""
    if found.shape != expected.shape or found.dtype != expected.dtype:
        return (
            f"expected {expected.dtype} {list(expected.shape)}, got {found.dtype} "
            f"{list(found.shape)}"
        )
    one, other = found.double(), expected.detach().double()
    scale = float(other.abs().max()) if other.numel() else 1.0
    worst = float((one - other).abs().max()) if other.numel() else 0.0
    # Written so that NaN is wrong.
    return None if worst <= _TOLERANCE * max(scale, 1e-30) else f"off by {worst:.2g} of {scale:.2g}"


def _time(run: Callable[[], Any]) -> float:
    times = []
    for _ in range(_REPEATS):
        begin = time.perf_counter()
        run()
        times.append(time.perf_counter() - begin)
    return min(times)
