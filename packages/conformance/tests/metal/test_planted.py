"""Kernels with one planted fault each: it is found, by name, and the right kernel has none."""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pytest
import torch

from torchyard_conformance.metal import Empty, Finding, Outcome, run

SOURCE: Final = Path(__file__).with_name("planted.metal").read_text(encoding="utf-8")
VALUES: Final = torch.linspace(-1.0, 1.0, 192).square()
WHOLE: Final = torch.arange(128, dtype=torch.int32) * 7
# Rows of 6 in storage of 9: no row begins at a multiple of 16 bytes.
APART: Final = torch.linspace(0, 1, 36).reshape(4, 9)[:, :6]
HALVES: Final = torch.linspace(0, 300, 64).half()


def _integer(value: int) -> torch.Tensor:
    return torch.tensor(value, dtype=torch.int32)


def _in_place(shift: int) -> dict[str, Any]:
    storage = torch.linspace(0, 1, 65)
    return {"x": storage, "y": storage[:64]} if shift else {"x": storage[:64], "y": storage[:64]}


@dataclass(frozen=True)
class Case:
    """A right kernel and those with a fault: (kernel, fault's mark, kind, buffer)."""

    right: str
    faulty: tuple[tuple[str, str, str, str], ...]
    grid: int | tuple[int, ...]
    threads: int | tuple[int, ...]
    buffers: Callable[[], Any]
    expected: Callable[[], torch.Tensor]
    output: str = "y"
    faulty_buffers: dict[str, Callable[[], Any]] = field(default_factory=dict)


CASES: Final = (
    Case(
        "reverse",
        (
            ("reverse_missing_barrier", "missing_barrier", "missing-barrier", "values"),
            ("reverse_wrong_flag", "wrong_flag", "missing-barrier", "values"),
            ("reverse_divergent", "divergent", "divergent-barrier", ""),
        ),
        3,
        64,
        lambda: [VALUES, Empty((192,), torch.float32)],
        lambda: VALUES.reshape(3, 64).flip(1).reshape(192),
    ),
    Case(
        "neighbours",
        (
            ("neighbours_by_one", "by_one", "out-of-bounds", "x"),
            ("neighbours_before", "before", "out-of-bounds", "y"),
        ),
        4,
        32,
        lambda: [VALUES[:100], Empty((100,), torch.float32), _integer(100)],
        lambda: VALUES[:100] + torch.cat([VALUES[1:100], torch.zeros(1)]),
    ),
    Case(
        "largest",
        (
            ("largest_race", "race_threadgroup", "race", "best"),
            ("largest_unwritten", "unwritten", "uninitialised-read", "values"),
            ("largest_own_array", "own_array", "out-of-bounds", ""),
        ),
        3,
        64,
        lambda: [VALUES, Empty((3,), torch.float32)],
        lambda: VALUES.reshape(3, 64).amax(1),
    ),
    Case(
        "count",
        (
            ("count_no_atomic", "no_atomic", "missing-atomic", "counts"),
            ("count_half_atomic", "half_atomic", "missing-atomic", "counts"),
            ("last_index", "race_device", "race", "counts"),
        ),
        4,
        32,
        lambda: [WHOLE, torch.zeros(4, dtype=torch.int32)],
        lambda: torch.bincount(WHOLE.long() % 4, minlength=4).int(),
        "counts",
    ),
    Case(
        "sums",
        (
            ("sums_of_32", "width", "simd-width", "y"),
            ("sums_by_shuffles", "shuffles", "simd-width", ""),
            ("sums_inactive", "inactive", "inactive-lane", ""),
        ),
        3,
        64,
        lambda: [VALUES, Empty((3,), torch.float32)],
        lambda: VALUES.reshape(3, 64).sum(1),
    ),
    Case(
        "squares",
        (("squares_overflow", "overflow", "half-overflow", ""),),
        2,
        32,
        lambda: [HALVES, Empty((64,), torch.float16)],
        lambda: HALVES.float().square().clamp(max=65504).half(),
    ),
    Case(
        "doubled",
        (("doubled_stride", "stride", "stride", "x"),),
        (1, 4),
        (6, 1),
        lambda: [APART, Empty((4, 6), torch.float32), struct.pack("3i", 4, 6, 9)],
        lambda: APART * 2,
    ),
    Case(
        "doubled_by_fours",
        (("doubled_misaligned", "misaligned", "misaligned", "x"),),
        (1, 4),
        (6, 1),
        lambda: [APART, Empty((4, 6), torch.float32), struct.pack("3i", 4, 6, 9)],
        lambda: APART * 2,
    ),
    Case(
        "negated",
        (("negated_shifted", "aliasing", "aliasing", "x, y"),),
        2,
        32,
        lambda: _in_place(0),
        lambda: -torch.linspace(0, 1, 65)[:64],
        faulty_buffers={"negated_shifted": lambda: _in_place(1)},
    ),
)
FAULTS: Final = [(case, *fault) for case in CASES for fault in case.faulty]


def _run(case: Case, kernel: str) -> Outcome:
    buffers = case.faulty_buffers.get(kernel, case.buffers)()
    return run(SOURCE, kernel, case.grid, case.threads, buffers)


def _line(mark: str) -> int:
    lines = SOURCE.splitlines()
    (found,) = [at for at, line in enumerate(lines, 1) if line.endswith(f"// FAULT {mark}")]
    return found


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.right)
def test_a_right_kernel_has_no_finding(case: Case) -> None:
    outcome = _run(case, case.right)
    assert [str(finding) for finding in outcome.findings] == []
    torch.testing.assert_close(outcome.outputs[case.output], case.expected())


@pytest.mark.parametrize(
    ("case", "kernel", "mark", "kind", "buffer"), FAULTS, ids=[fault[1] for fault in FAULTS]
)
def test_a_planted_fault_is_found_by_name(
    case: Case, kernel: str, mark: str, kind: str, buffer: str
) -> None:
    findings = _run(case, kernel).findings
    assert findings, f"{kernel} has no finding"
    named: list[Finding] = [finding for finding in findings if finding.kind == kind]
    assert named, [str(finding) for finding in findings]
    assert {finding.kernel for finding in named} == {kernel}
    assert (_line(mark), buffer) in {(finding.line, finding.buffer) for finding in named}


def test_a_finding_says_where_and_who() -> None:
    (found,) = _run(CASES[1], "neighbours_by_one").findings
    assert (found.buffer, found.index) == ("x", 100)
    assert (found.group, found.thread) == ((3, 0, 0), (3, 0, 0))
    assert str(found).startswith(f"out-of-bounds: neighbours_by_one, line {found.line}: x[100]")


def test_a_conflict_names_both_threads_and_both_lines() -> None:
    findings = _run(CASES[0], "reverse_missing_barrier").findings
    found = next(one for one in findings if one.kind == "missing-barrier")
    assert found.other_line == _line("missing_barrier") - 1
    assert found.other_thread != found.thread
    assert found.index in range(64)


def test_a_kernel_that_never_ends_is_a_finding() -> None:
    flag = torch.zeros(1, dtype=torch.int32)
    outcome = run(SOURCE, "waits", 1, 4, [flag], orders=1, address_sanitizer=False, timeout=0.5)
    assert [finding.kind for finding in outcome.findings] == ["timeout"]


def test_undefined_behaviour_is_a_finding() -> None:
    (found,) = run(SOURCE, "overflows", 1, 4, [torch.ones(4, dtype=torch.int32)]).findings
    assert (found.kind, found.line) == ("undefined", _line("undefined"))
    assert "signed integer overflow" in found.text
