"""What the device's tests share: a loaded device, and fresh interpreters."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest
import torch

import torchyard_simulated

FreshPython = Callable[..., str]


@pytest.fixture(scope="session", autouse=True)
def loaded_device() -> None:
    torchyard_simulated.load()


@pytest.fixture(autouse=True)
def idle_device(loaded_device: None) -> Iterator[None]:
    """End every test with nothing queued on either device."""
    yield
    for index in range(torch.accelerator.device_count()):
        torch.accelerator.synchronize(index)


@pytest.fixture
def fresh_python() -> FreshPython:
    """Run a program in a new interpreter; return what it printed, or fail with its errors.

    The device is asked for, and torch loads it when it is imported, unless the environment says
    otherwise.
    """
    asked = {"TORCHYARD_PRIVATEUSE1": "simulated", "TORCH_DEVICE_BACKEND_AUTOLOAD": "1"}

    def run(program: str, **environment: str) -> str:
        result = subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, **asked, **environment},
            capture_output=True,
            text=True,
            timeout=600,
        )
        assert result.returncode == 0, result.stdout + result.stderr
        return result.stdout.strip()

    return run
