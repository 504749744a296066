"""Programs on several ranks."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

RunRanks = Callable[..., list[str]]

_START = """
import copy
import os
import torch
import torch.distributed as dist
rank = int(os.environ["RANK"])
dist.init_process_group("{backend}")
torch.accelerator.set_device_index(rank % 2)
"""
_END = """
dist.destroy_process_group()
"""


@pytest.fixture
def run_ranks(tmp_path: Path) -> RunRanks:
    """Run a program on two ranks over loopback; return what each printed, or fail with it.

    The program has ``torch``, ``dist`` and ``rank``, and the rank's device is the current one.
    """

    def run(program: str, backend: str = "simulated") -> list[str]:
        path = tmp_path / "program.py"
        path.write_text(_START.format(backend=backend) + textwrap.dedent(program) + _END)
        environment = {
            **os.environ,
            "TORCHYARD_PRIVATEUSE1": "simulated",
            "TORCH_DEVICE_BACKEND_AUTOLOAD": "1",
            "OMP_NUM_THREADS": "1",
        }
        command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--no-python"]
        command += ["--nproc-per-node=2", f"--log-dir={tmp_path}", "--redirects=3"]
        result = subprocess.run(
            [*command, sys.executable, str(path)],
            env=environment,
            capture_output=True,
            text=True,
            timeout=600,
        )
        printed, errors = (
            [
                "".join(log.read_text() for log in tmp_path.glob(f"**/{rank}/{name}.log"))
                for rank in range(2)
            ]
            for name in ("stdout", "stderr")
        )
        assert result.returncode == 0, (printed, errors, result.stderr[-2000:])
        return [text.strip() for text in printed]

    return run
