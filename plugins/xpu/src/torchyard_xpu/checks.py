"""What ``torchyard doctor`` shows beside an Intel GPU itself: the driver, and faults of torch."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from torchyard import Check, CheckStatus, Registry, UnknownContractError, hookimpl, registry

__all__ = ["driver_check", "graph_check", "torchyard_checks"]

# Level Zero's version in the drivers that torch's first release for XPU named (2024.22), from
# memory.
_OLDEST: Final = (1, 3, 29735)
_CAPTURE: Final = "graph_capture/1"


@hookimpl
def torchyard_checks() -> Sequence[Check]:
    """Judge driver and graphs; imports torch, and nothing where it has no Intel GPU."""
    try:
        import torch
    except ImportError:
        return []
    if not torch.version.xpu or not torch.xpu.is_available():
        return []
    facts = torch.xpu.get_device_properties(0)
    return [driver_check(str(facts.driver_version)), graph_check(registry())]


def driver_check(driver: str) -> Check:
    """Compare the driver with the oldest that torch for XPU was released for.

    Args:
        driver: Level Zero's version.
    """
    name = "driver of XPU"
    numbers = _numbers(driver)
    if not numbers:
        return Check(name, CheckStatus.UNVERIFIED, f"the driver says no version, but {driver!r}")
    if numbers[:3] < _OLDEST:
        least = ".".join(map(str, _OLDEST))
        return Check(
            name,
            CheckStatus.WARN,
            f"Level Zero {driver} is older than {least}, the oldest that torch was released for",
            "install Intel's newer GPU driver (intel-level-zero-gpu, intel-opencl-icd)",
        )
    return Check(name, CheckStatus.PASS, f"Level Zero {driver}")


def graph_check(known: Registry) -> Check:
    """Say what a capture of torchyard-kernels refuses, since this machine's graphs do not hold it.

    Args:
        known: whose platform has torch's version and the facts of the device.
    """
    name = "graphs on XPU"
    try:
        definition = known.definition(known.contract(_CAPTURE))
    except UnknownContractError:
        return Check(name, CheckStatus.UNVERIFIED, "torchyard-kernels, which captures, is absent")
    refused = []
    for request in definition.cases("xpu"):
        decision = known.decide(_CAPTURE, request)
        if decision.chosen is None:
            refused += [item.verdict for item in decision.skipped()]
    if not refused:
        text = f"no fault of torch {known.platform.torch} is known here"
        return Check(name, CheckStatus.UNVERIFIED, text)
    texts = "; ".join(dict.fromkeys(verdict.text for verdict in refused))
    return Check(name, CheckStatus.WARN, f"a capture refuses {texts}", refused[-1].hint)


def _numbers(version: str) -> tuple[int, ...]:
    match = re.match(r"\d+(\.\d+)*", version)
    return () if match is None else tuple(map(int, match[0].split(".")))
