"""The hooks that a plugin may implement.

A plugin's manifest names the module that holds each hook. The module is imported, and its hook
called, only when somebody asks for what it offers: never at ``import torchyard``, never while a
model runs. Every hook returns data. A hook that raises, or returns something else than is written
here, turns its plugin to *failed*, with the reason kept, and disturbs nothing else.

A function may leave arguments out, so that a later torchyard can add one; and it may have one more
that an earlier torchyard does not give, if that has a default.
"""

# A specification has no body: pluggy reads its signature and never calls it.
# mypy: disable-error-code="empty-body"

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import pluggy

if TYPE_CHECKING:
    from torchyard._contracts.implementation import Implementation
    from torchyard._contracts.optimization import Optimization
    from torchyard._plugins.check import Check
    from torchyard._plugins.device_status import DeviceStatus
    from torchyard._plugins.workload import SpeedLimits, Workload

__all__ = [
    "PROJECT",
    "hookimpl",
    "hookspec",
    "torchyard_checks",
    "torchyard_implementations",
    "torchyard_optimizations",
    "torchyard_probe_device",
    "torchyard_speed_limits",
    "torchyard_workloads",
]

PROJECT = "torchyard"

hookspec = pluggy.HookspecMarker(PROJECT)
hookimpl = pluggy.HookimplMarker(PROJECT)


@hookspec
def torchyard_implementations(contract: str, minor: int) -> Sequence[Implementation]:
    """Return the plugin's implementations of a contract.

    Called once per process and module named under ``[[implements]]``, when the contract is first
    resolved for one of the devices listed there.

    Args:
        contract: ``op/version``, one that the manifest lists for this module.
        minor: the minor of that version which the installed component defines; 0 is the first.
    """


@hookspec
def torchyard_probe_device(device: str) -> DeviceStatus:
    """Say whether a device of the manifest can be used now.

    Called by ``torchyard doctor`` and by whoever looks for the best device; may import torch.

    Args:
        device: the torch device type, as listed under ``[[devices]]`` for this module.
    """


@hookspec
def torchyard_checks() -> Sequence[Check]:
    """Return the plugin's own checks of the installation.

    Called by ``torchyard doctor`` alone, after the devices were probed. An exception becomes a
    failed check; the plugin stays as it is.
    """


@hookspec
def torchyard_speed_limits(device: str) -> SpeedLimits:
    """Measure what a device reaches when it does one thing only.

    Called by ``torchyard doctor --measure`` alone, for the module under ``[measure]``; may take a
    few seconds and import torch.

    Args:
        device: the torch device type, one that the manifest lists under ``[[devices]]``.
    """


@hookspec
def torchyard_workloads(device: str) -> Sequence[Workload]:
    """Return work of the component on a device, each with the limit that bounds it.

    Called by ``torchyard doctor --measure`` alone, for the module under ``[measure]``.

    Args:
        device: the torch device type.
    """


@hookspec
def torchyard_optimizations() -> Sequence[Optimization]:
    """Return what the plugin can do to a whole model to make it faster or smaller.

    Called by :func:`torchyard.optimize` and by a plan that names the plugin, for the module under
    ``[optimize]``.
    """
