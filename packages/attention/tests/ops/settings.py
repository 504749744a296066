"""Settings under which a decision is another, as contexts."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import torch

import torchyard

__all__ = ["context", "deterministic", "environment"]


@contextmanager
def deterministic() -> Iterator[None]:
    """Demand deterministic algorithms of torch."""
    torch.use_deterministic_algorithms(True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(False)


@contextmanager
def environment() -> Iterator[None]:
    """Enlist an implementation by an environment variable."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TORCHYARD_ENLIST", "attention.flex")
        yield


@contextmanager
def context() -> Iterator[None]:
    """Demand an implementation in a block."""
    with torchyard.use(attention="attention.tiled"):
        yield
