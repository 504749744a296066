"""What importing the package brings in beside torch, counted rather than timed."""

from __future__ import annotations

import subprocess
import sys

from torchyard import child_environ

# Each takes longer to import than torch does; recording a program is what needs them.
_HEAVY = ("sympy", "torch._dynamo", "torch._inductor", "torch.distributed.fsdp", "onnx")


def test_importing_it_brings_in_nothing_that_only_recording_needs() -> None:
    program = f"""
import sys
import torch
import torchyard_export, torchyard_export.contract
print([name for name in {_HEAVY!r} if name in sys.modules])
"""
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=child_environ({}),
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == "[]"
