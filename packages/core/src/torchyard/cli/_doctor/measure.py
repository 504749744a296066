"""``torchyard doctor --measure``: each workload's share of what the device can do."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Final

from torchyard._plugins.activation import PluginCodeError
from torchyard._plugins.check import Check, CheckStatus
from torchyard._plugins.workload import SpeedLimits, Workload
from torchyard._progress import Steps
from torchyard._registry.registry import Registry
from torchyard.cli._doctor.diagnosis import Section
from torchyard.cli._torch import load_torch

__all__ = ["measure"]

# Below this share of the limit a workload is worth looking at.
_ENOUGH: Final = 0.8
# How far two measurements of a limit may lie apart.
_AGREE: Final = 0.15
# Of a workload, behind a first call that compiles, packs and wakes threads.
_SECONDS: Final = 0.6
_LEAST_CALLS: Final = 3


def measure(registry: Registry, device: str, steps: Steps) -> Section:
    """Measure every workload that the installed components name, against the device's limits.

    Args:
        registry: what is installed.
        device: the torch device type.
        steps: called with the name of what begins.

    Returns:
        A check for each workload: a warning below 80 % of the limit, with what may raise it;
        UNVERIFIED where nothing could be measured.
    """
    title = f"speed on {device}, as a share of its limits"
    steps.expect(1)
    steps.step(f"limits of {device}")
    found = registry.speed_limits(device)
    if isinstance(found, str):
        return Section(title, (Check(f"limits of {device}", CheckStatus.UNVERIFIED, found),))
    checks = [_limits_check(device, found)]
    workloads: list[Workload] = []
    for plugin in registry.plugins:
        try:
            workloads += registry.workloads(plugin, device)
        except PluginCodeError as error:
            checks.append(_broken(plugin.name, error))
    if not workloads:
        checks.append(
            Check(
                "workloads",
                CheckStatus.UNVERIFIED,
                "no installed component names one",
                'pip install "torchyard[attention,kernels]"',
            )
        )
    wait = _synchronizing(device)
    steps.expect(len(workloads) + 1)
    for workload in workloads:
        steps.step(workload.name)
        checks.append(_measured(workload, found, wait))
    steps.step(f"limits of {device} once more")
    checks.append(_repeated(found, registry.speed_limits(device)))
    return Section(title, tuple(checks))


def _limits_check(device: str, limits: SpeedLimits) -> Check:
    parts = [f"{name} {value / 1e9:,.0f} G/s" for name, value in limits.per_second.items()]
    return Check(f"limits of {device}", CheckStatus.PASS, ", ".join(parts))


def _repeated(first: SpeedLimits, second: SpeedLimits | str) -> Check:
    """Compare the limits before and after: where they moved, the shares between mean little."""
    name = "limits, measured again"
    if isinstance(second, str):
        return Check(name, CheckStatus.FAIL, second)
    moved = {
        limit: second.per_second.get(limit, 0.0) / value - 1.0
        for limit, value in first.per_second.items()
    }
    limit, most = max(moved.items(), key=lambda item: abs(item[1]))
    text = f"at most {abs(most):.0%} away ({limit})"
    if abs(most) <= _AGREE:
        return Check(name, CheckStatus.PASS, text)
    return Check(
        name,
        CheckStatus.WARN,
        f"{text}: something else used the machine, and the shares above are not reliable",
        "measure again while nothing else runs",
    )


def _measured(workload: Workload, limits: SpeedLimits, wait: Callable[[], object]) -> Check:
    limit = next((limits.per_second[n] for n in workload.limits if n in limits.per_second), None)
    if limit is None:
        names = " or ".join(workload.limits)
        text = f"the device gives no limit of {names}"
        return Check(workload.name, CheckStatus.UNVERIFIED, text)
    try:
        seconds = _median_seconds(workload.prepare(), wait)
    except Exception as error:  # Whatever a component's call raises is that workload's result.
        return _broken(workload.name, error)
    share = workload.amount / seconds / limit
    text = f"{share:.0%} of the limit: {workload.amount / seconds / 1e9:,.1f} G/s"
    if share >= _ENOUGH:
        return Check(workload.name, CheckStatus.PASS, text)
    hint = f"`{limits.tune}` searches faster settings" if limits.tune else ""
    return Check(workload.name, CheckStatus.WARN, f"{text}, under {_ENOUGH:.0%}", hint)


def _synchronizing(device: str) -> Callable[[], object]:
    """Return a function that waits until a device has done its work."""
    torch = load_torch().module
    # Without torch there are only devices of plugins, whose calls return when they are done.
    if torch is None or not hasattr(torch, device):
        return lambda: None
    wait: Callable[[], object] = torch.get_device_module(device).synchronize
    return wait


def _median_seconds(call: Callable[[], object], wait: Callable[[], object]) -> float:
    call()
    wait()
    times: list[float] = []
    begin = time.perf_counter()
    while len(times) < _LEAST_CALLS or time.perf_counter() - begin < _SECONDS:
        start = time.perf_counter()
        call()
        wait()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def _broken(name: str, error: Exception) -> Check:
    return Check(name, CheckStatus.FAIL, f"{type(error).__name__}: {error}")
