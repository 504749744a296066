"""torch's own tests of backends, from its wheel: what passes on gloo passes on this one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

# torch.distributed refuses all backends but gloo there, or the test compares gloo's words.
_GLOO_ALONE = {
    "test_monitored_barrier_failure_order",
    "test_monitored_barrier_gloo",
    "test_monitored_barrier_gloo_rank_0_timeout",
    "test_monitored_barrier_gloo_subgroup",
    "test_monitored_barrier_wait_all_ranks",
}


def _outcomes(backend: str, world: int, *tests: str) -> dict[str, Any]:
    """Return the line of each test by its name."""
    program = Path(__file__).with_name("torch_suite.py")
    words = [f"--backend={backend}", f"--world={world}", "--patience=600", *tests]
    run = subprocess.run(
        [sys.executable, str(program), *words],
        env={**os.environ, "OMP_NUM_THREADS": "1", "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"},
        capture_output=True,
        text=True,
    )
    lines = [json.loads(line) for line in run.stdout.splitlines()]
    assert lines, run.stderr[-4000:]
    assert sum(lines.pop().values()) == len(lines)
    return {line["test"]: line for line in lines}


def _of(outcome: str, lines: dict[str, Any]) -> set[str]:
    return {name for name, line in lines.items() if line["outcome"] == outcome}


@pytest.mark.sweep
@pytest.mark.parametrize("world", [2, 3, 8])
def test_torchs_own_tests_of_backends_pass_where_gloo_passes_them(world: int) -> None:
    found = _outcomes("shm", world)
    # On torch 2.13, of 285 tests, 195 need accelerators, torchvision or more ranks than two.
    assert len(_of("passed", found)) > 75
    failed = _of("failed", found)
    beside = _outcomes("gloo", world, *sorted(failed | _GLOO_ALONE))
    worse = failed - _of("failed", beside)
    assert worse <= _GLOO_ALONE, {name: found[name]["text"] for name in worse - _GLOO_ALONE}
