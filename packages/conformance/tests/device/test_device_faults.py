"""Each check of a device finds the fault that is planted for it, and passes without one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from torchyard_conformance._device._run import CHECKS

# Fault by check: what is planted, and words of what the check says.
_FAULTS = {
    "compile": [
        ("torch.compile = lambda model, **options: model", "generate kernels, it generated none"),
        (
            """
from torchyard_simulated._inductor._kernel import Kernel
Kernel.__call__ = lambda self, *arguments: None
""",
            "the compiled forward: expected the CPU's result",
        ),
    ],
    "collectives": [
        (
            "import torch.distributed as dist; dist.Backend.backend_capability.pop('simulated')",
            "expected a backend of torch.distributed for simulated",
        ),
    ],
    "autocast": [
        (
            "import contextlib; torch.autocast = lambda *a, **k: contextlib.nullcontext()",
            "a matrix product under autocast: expected torch.bfloat16, got torch.float32",
        ),
        (
            "torch.Tensor.pow = lambda x, n: x * x",
            "a power under autocast: expected torch.float32, got torch.bfloat16",
        ),
    ],
    "profiler": [
        (
            "torch.Tensor.mm = lambda x, y: x",
            "expected 1 of aten::mm in the profile, got 0",
        ),
    ],
    "pinned": [
        ("torch.Tensor.pin_memory = torch.Tensor.clone", "is_pinned() says False"),
        ("torch.Tensor.is_pinned = lambda x: True", "expected is_pinned() to be False"),
        ("torch.Tensor.copy_ = lambda x, y, **k: x", "a copy to the device and back"),
    ],
    "serialisation": [
        (
            """
load = torch.load
torch.load = lambda f, map_location, **k: load(f, map_location="cpu", **k)
""",
            "whole: expected a tensor on simulated, got one on cpu",
        ),
        (
            """
load = torch.load
torch.load = lambda *a, **k: {name: x.clone() for name, x in load(*a, **k).items()}
""",
            "part: expected strides",
        ),
        (
            """
load = torch.load
def copied(*a, **k):
    found = load(*a, **k)
    part = found["part"]
    found["part"] = part.new_empty(4, 3).t()[:part.shape[0]].new_empty_strided(
        part.shape, part.stride()).copy_(part)
    return found
torch.load = copied
""",
            "expected tensors that shared memory to share it once loaded",
        ),
    ],
    "graphs": [
        ("torch.accelerator.Graph.replay = lambda graph: None", "a replay on 1.0"),
        (
            """
import contextlib
class Eager(contextlib.nullcontext):
    replay = lambda graph: None
torch.accelerator.Graph = Eager
""",
            "expected a capture to change no memory",
        ),
    ],
}
# Run in each rank: sums of one rank alone.
_LONELY = """
import torch.distributed as dist
dist.all_reduce = lambda tensor, *a, **k: None
"""


def _outcome(folder: Path, check: str, fault: str = "") -> tuple[str, str]:
    path = folder / "outcome.json"
    program = f"""
import torch, torchyard_simulated
torchyard_simulated.load()
{fault}
from torchyard_conformance._device._run import observe
observe({check!r}, "simulated", {str(path)!r})
"""
    result = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "TORCHYARD_PRIVATEUSE1": "simulated", "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert path.is_file(), result.stderr
    outcome, text = json.loads(path.read_text())
    return outcome, text


# They compile a model, or start more processes.
_SLOW = {"collectives", "compile"}


def _marks(check: str) -> list[pytest.MarkDecorator]:
    return [pytest.mark.sweep] if check in _SLOW else []


@pytest.mark.sweep
@pytest.mark.parametrize(
    ("check", "fault", "words"),
    [
        pytest.param(check, *fault, id=f"{check}-{n}", marks=_marks(check))
        for check, faults in _FAULTS.items()
        for n, fault in enumerate(faults)
    ],
)
def test_a_check_finds_its_fault(tmp_path: Path, check: str, fault: str, words: str) -> None:
    outcome, text = _outcome(tmp_path, check, fault)
    assert (outcome, words in text) == ("violated", True), text


@pytest.mark.sweep
def test_a_sum_of_one_rank_alone_is_found(tmp_path: Path) -> None:
    fault = f"""
from torchyard_conformance._device import _collectives, _run
table = dict(_run.CHECKS)
table["collectives"] = lambda device: _collectives.check_collectives(device, {_LONELY!r})
_run.CHECKS = table
"""
    outcome, text = _outcome(tmp_path, "collectives", fault)
    assert outcome == "violated"
    assert "all_reduce: expected the CPU's result" in text


@pytest.mark.sweep
@pytest.mark.parametrize(
    "check", [pytest.param(check, marks=_marks(check)) for check in sorted(CHECKS)]
)
def test_the_simulated_device_has_none(tmp_path: Path, check: str) -> None:
    assert _outcome(tmp_path, check) == ("passed", "")


def test_every_check_has_a_fault() -> None:
    assert _FAULTS.keys() == CHECKS.keys()
