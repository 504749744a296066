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
        (
            """
from torch.autograd.profiler_util import FunctionEventAvg
FunctionEventAvg.device_time_total = property(lambda event: 0.0, lambda event, us: None)
""",
            "use_device='simulated': expected a time of aten::mm above 0 us",
        ),
    ],
    "events": [
        (
            """
class Event(torch.Event):
    query = lambda event: False
torch.Event = Event
""",
            "expected query() to be True",
        ),
        (
            """
class Event(torch.Event):
    elapsed_time = lambda event, end: 1.0
torch.Event = Event
""",
            "expected at least the 50 ms",
        ),
        (
            """
torch.Tensor.__mul__ = lambda x, y: x.clone()
""",
            "work behind an event of another stream: expected the CPU's result",
        ),
    ],
    "layers": [
        (
            """
def refuse(*arguments, **keywords):
    raise NotImplementedError("no convolution here")
torch.nn.Conv1d.forward = refuse
""",
            "Conv1d: expected the device to compute it, got no convolution here",
        ),
        (
            """
forward = torch.nn.LSTM.forward
torch.nn.LSTM.forward = lambda m, x: (
    forward(m, x) if x.device.type == "cpu" else forward(m, x.flip(0))
)
""",
            "LSTM without gradients: expected the CPU's result",
        ),
        (
            """
forward = torch.nn.GRU.forward
def without(m, x):
    return forward(m, x if x.device.type == "cpu" else x * 0.5 + (x * 0.5).detach())
torch.nn.GRU.forward = without
""",
            "GRU: the gradient of its input: expected the CPU's result",
        ),
    ],
    "operators": [
        (
            """
library = torch.library.Library("aten", "IMPL")
library.impl("relu", lambda x: x.clone(), "PrivateUse1")
""",
            "relu of float32, dense: expected the CPU's result",
        ),
        (
            """
library = torch.library.Library("aten", "IMPL")
def without_strides(x):
    dense = torch.empty(x.shape).stride()
    return x.as_strided(x.shape, dense).clamp(min=0) if x.numel() else x.clone()
library.impl("relu", without_strides, "PrivateUse1")
""",
            "relu of float32, transposed: expected the CPU's result",
        ),
        (
            """
library = torch.library.Library("aten", "IMPL")
library.impl("threshold_backward", lambda grad, x, threshold: grad.clone(), "PrivateUse1")
""",
            "the gradient of relu of float32, dense: expected the CPU's result",
        ),
        (
            """
library = torch.library.Library("aten", "IMPL")
def of_float32(x):
    if x.dtype != torch.float32:
        raise NotImplementedError(f"no relu of {x.dtype} here")
    return x.clamp(min=0)
library.impl("relu", of_float32, "PrivateUse1")
""",
            "relu of bfloat16, dense: expected the device to compute it, got no relu",
        ),
    ],
    "random": [
        ("torch.rand = torch.ones", "expected torch.rand to draw other numbers each time"),
        ("torch.manual_seed = lambda seed: None", "torch.rand after torch.manual_seed"),
        (
            "torch.simulated.set_rng_state = lambda state, device=None: None",
            "torch.rand after torch.simulated.set_rng_state",
        ),
        (
            """
import contextlib
torch.random.fork_rng = lambda **k: contextlib.nullcontext()
""",
            "torch.rand after torch.random.fork_rng",
        ),
        (
            "torch.Tensor.normal_ = lambda x, generator: x.uniform_()",
            "numbers of a generator that was seeded again",
        ),
        (
            """
from torch.utils import checkpoint
import torchyard_conformance._device._random as checks
def forget(function, *inputs, use_reentrant):
    return checkpoint.checkpoint(
        function, *inputs, use_reentrant=use_reentrant, preserve_rng_state=False)
checks.checkpoint = forget
""",
            "the gradient of dropout under torch.utils.checkpoint",
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
        (
            """
replay, replays = torch.accelerator.Graph.replay, []
def first_two(graph):
    replays.append(graph)
    if len(replays) < 3:
        replay(graph)
torch.accelerator.Graph.replay = first_two
""",
            "a replay of add on other inputs: expected the CPU's result",
        ),
    ],
}
# Run in each rank, with words of what the check says.
_IN_RANKS = {
    "a-sum-of-one-rank": (
        """
import torch.distributed as dist
dist.all_reduce = lambda tensor, *a, **k: None
""",
        "all_reduce: expected the CPU's result",
    ),
    "a-part-of-a-gradient": (
        """
from torch.distributed.tensor import DTensor
DTensor.full_tensor = DTensor.to_local
""",
        "under FSDP2: expected the CPU's result",
    ),
    "a-part-of-a-layer": (
        """
import functools
from torch.distributed.tensor import Shard, parallel
parallel.RowwiseParallel = functools.partial(parallel.RowwiseParallel, output_layouts=Shard(-1))
""",
        "under tensor parallelism: expected the CPU's result",
    ),
}


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
@pytest.mark.parametrize(("first", "words"), _IN_RANKS.values(), ids=_IN_RANKS)
def test_a_fault_in_the_ranks_is_found(tmp_path: Path, first: str, words: str) -> None:
    fault = f"""
from torchyard_conformance._device import _collectives, _run
table = dict(_run.CHECKS)
table["collectives"] = lambda device: _collectives.check_collectives(device, {first!r})
_run.CHECKS = table
"""
    outcome, text = _outcome(tmp_path, "collectives", fault)
    assert (outcome, words in text) == ("violated", True), text


@pytest.mark.sweep
@pytest.mark.parametrize(
    "check", [pytest.param(check, marks=_marks(check)) for check in sorted(CHECKS)]
)
def test_the_simulated_device_has_none(tmp_path: Path, check: str) -> None:
    assert _outcome(tmp_path, check) == ("passed", "")


def test_every_check_has_a_fault() -> None:
    assert _FAULTS.keys() == CHECKS.keys()
