"""The machine's accelerators are distinguished by torch and the host alone."""

from __future__ import annotations

import json
import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from tests.architecture.tree import ROOT
from tests.targets import ACCELERATORS, absence


def _torch(*, cuda: bool = False, hip: str | None = None, xpu: bool = False) -> Any:
    return SimpleNamespace(
        __version__="9.9",
        version=SimpleNamespace(hip=hip),
        cuda=SimpleNamespace(is_available=lambda: cuda),
        xpu=SimpleNamespace(is_available=lambda: xpu),
        backends=SimpleNamespace(mps=SimpleNamespace(is_available=lambda: False)),
    )


@pytest.mark.parametrize("target", ACCELERATORS)
def test_a_bare_linux_host_lacks_every_accelerator(target: str) -> None:
    assert absence(target, system="linux", exists=lambda path: False)


def test_a_device_node_alone_leaves_the_answer_to_torch() -> None:
    assert not absence("cuda", system="linux", exists=lambda path: True)
    reason = absence("cuda", system="linux", exists=lambda path: True, torch=_torch())
    assert reason == "torch 9.9 finds no cuda device"


def test_an_amd_device_is_not_taken_for_an_nvidia_one() -> None:
    torch = _torch(cuda=True, hip="7.0")
    present = {
        target: not absence(target, system="linux", exists=lambda path: True, torch=torch)
        for target in ("cuda", "rocm", "xpu")
    }
    assert present == {"cuda": False, "rocm": True, "xpu": False}


def test_the_program_prints_every_target() -> None:
    printed = subprocess.run(
        [sys.executable, "tests/targets.py"], cwd=ROOT, check=True, capture_output=True, text=True
    )
    assert tuple(json.loads(printed.stdout)) == ACCELERATORS
