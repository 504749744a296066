"""The package without torchyard-cpu, which has the kernels of its shared memory."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from torchyard import child_environ


@pytest.mark.sweep
def test_doctor_calls_it_sound_and_names_what_would_add_shared_memory() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "torchyard", "doctor", "--json"],
        env=child_environ({"TORCHYARD_PLUGINS": "collectives"}),
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    sections = json.loads(done.stdout)["sections"]
    rows = {check["name"]: check for check in sections["decisions"]}
    row = rows["shared_memory/1 on cpu"]
    assert (row["status"], row["hint"]) == ("unverified", "pip install torchyard[cpu]")
    assert "torchyard-cpu, which implements it, is not in use here" in row["text"]
