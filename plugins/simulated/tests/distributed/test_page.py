"""The program on the page about devices that train does what the page says."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

_PAGE = Path(__file__).parents[4] / "docs" / "plugins" / "training.md"
_PROGRAM = re.compile(r"<!-- device: simulated -->\n```python\n(.*?)```", re.DOTALL)


@pytest.mark.sweep
def test_the_pages_program_trains_on_two_ranks(tmp_path: Path) -> None:
    (program,) = _PROGRAM.findall(_PAGE.read_text(encoding="utf-8"))
    path = tmp_path / "train.py"
    path.write_text(program)
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    result = subprocess.run(
        [*command, "--nproc-per-node=2", str(path)],
        env={**os.environ, "TORCHYARD_PRIVATEUSE1": "simulated", "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert result.returncode == 0, result.stderr[-3000:]
    found = sorted(line for line in result.stdout.splitlines() if line.startswith("rank"))
    assert found == [f"rank {rank}: the gradients are those of the CPU" for rank in range(2)]
