"""``run``: carry out a launch on the device of its buffers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any, Final

import torch
from torch import Tensor

from torchyard_mps._launch import Launch

__all__ = ["is_run_on", "run", "runs_by"]

_DEVICE: Final = "mps"
# Innermost last. Of all threads, since those of autograd launch the kernels of gradients.
_RUNNERS: Final[list[Callable[[Launch], None]]] = []


@contextmanager
def runs_by(runner: Callable[[Launch], None]) -> Iterator[None]:
    """Carry out launches by a function that fills their outputs, wherever their buffers are.

    So kernels are tested on a machine without an Apple GPU. Holds for all threads.
    """
    _RUNNERS.append(runner)
    try:
        yield
    finally:
        _RUNNERS.remove(runner)


def is_run_on(tensor: Tensor) -> bool:
    """Return whether launches run where a tensor is."""
    return tensor.device.type == _DEVICE or bool(_RUNNERS)


def run(launch: Launch) -> None:
    """Fill the outputs of a launch.

    Raises:
        ValueError: a buffer is not on an Apple GPU.
    """
    if _RUNNERS:
        _RUNNERS[-1](launch)
        return
    for tensor in launch.buffers:
        if tensor.device.type != _DEVICE:
            raise ValueError(
                f"torchyard_mps: {launch.kernel}: expected tensors on {_DEVICE}, got one on "
                f"{tensor.device}; move them there, or use torch's own function for that device"
            )
    groups = (launch.groups[0] * launch.threads, launch.groups[1], 1)
    kernel = getattr(_library(launch.source), launch.kernel)
    kernel(*launch.buffers, threads=groups, group_size=(launch.threads, 1, 1))


@lru_cache(maxsize=256)
def _library(source: str) -> Any:
    """Return a compiled library; torch compiles where the source is new."""
    return torch.mps.compile_shader(source)
