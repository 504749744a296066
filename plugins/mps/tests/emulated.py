"""Launches, run in Metal on this machine."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from typing import Any, Final

from torch import Tensor

from torchyard_conformance import metal
from torchyard_mps._launch import Launch
from torchyard_mps._runner import runs_by

__all__ = ["emulated", "fill", "filled"]

# A second opinion on what is computed: `nox -s opencl` sets it.
_BY_OPENCL: Final = os.environ.get("TORCHYARD_METAL_ON") == "opencl"


def fill(launch: Launch, **options: Any) -> None:
    """Fill the outputs of a launch; a finding is an error, and what Clang says of its source.

    Args:
        launch: the launch.
        options: of ``metal.run``.
    """
    warnings = _warnings(launch.source)
    assert not warnings, warnings
    findings = filled(launch, **options)
    assert not findings, findings


def filled(launch: Launch, **options: Any) -> list[str]:
    """Fill the outputs of a launch, and return what is wrong with the kernel: by OpenCL nothing."""
    if _BY_OPENCL:
        _keep(
            launch,
            metal.run_by_opencl(
                launch.source, launch.kernel, launch.groups, launch.threads, _buffers(launch)
            ),
        )
        return []
    outcome = metal.run(
        launch.source, launch.kernel, launch.groups, launch.threads, _buffers(launch), **options
    )
    _keep(launch, outcome.outputs)
    return [str(finding) for finding in outcome.findings]


def _buffers(launch: Launch) -> list[Any]:
    # Of whatever device: results are copied back.
    buffers: list[Any] = [buffer.cpu() for buffer in launch.buffers]
    for index in launch.outputs:
        given = launch.buffers[index]
        buffers[index] = metal.Empty(tuple(given.shape), given.dtype, given.stride())
    return buffers


def _keep(launch: Launch, outputs: Mapping[str, Tensor]) -> None:
    names = _names(launch)
    for index in (*launch.outputs, *launch.updated):
        launch.buffers[index].copy_(outputs[names[index]])


# A source is that of many launches.
_warnings = cache(metal.check)


def _names(launch: Launch) -> dict[int, str]:
    """Return the names of a kernel's buffers by index."""
    parameters = launch.source.partition(f"kernel void {launch.kernel}(")[2].partition(") {")[0]
    found = re.findall(r"(\w+) \[\[buffer\((\d+)\)\]\]", parameters)
    return {int(index): name for name, index in found}


@contextmanager
def emulated(**options: Any) -> Iterator[None]:
    """Run launches here: once, and without AddressSanitizer, unless ``options`` say otherwise."""
    once: dict[str, Any] = {"orders": 1, "simd_widths": (32,), "address_sanitizer": False}
    with runs_by(lambda launch: fill(launch, **once | options)):
        yield
