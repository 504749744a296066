"""Operators that a device's own graphs cannot capture, by the facts of the machine."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from torchyard import Platform

__all__ = ["FAULTS", "GraphFault", "audited", "graph_faults"]


@dataclass(frozen=True, slots=True)
class GraphFault:
    """An operator that graphs of a device do not hold, and on which machines.

    Attributes:
        device: torch device type.
        operator: its name without an overload, such as ``aten::mm``.
        torch: the minor of torch that has the fault, such as ``2.13``; empty: any.
        before_runtime: the accelerator's runtime (``torch.version.xpu``) that no longer has it; 0:
            any has it.
        text: what happens.
        hint: what the person could do instead.
        source: where it was reported.
    """

    device: str
    operator: str
    torch: str
    before_runtime: int
    text: str
    hint: str
    source: str

    def holds(self, platform: Platform) -> bool:
        """Return whether a machine has the fault; a runtime that is not known is taken to."""
        if self.torch and _minor(platform.torch) != self.torch:
            return False
        accelerator = platform.accelerator(self.device)
        runtime = accelerator.runtime if accelerator is not None else ""
        known = int(runtime) if runtime.isdigit() else 0
        return not self.before_runtime or known < self.before_runtime


_HINT: Final = (
    "capture with torch's math backend, torch.nn.attention.sdpa_kernel(SDPBackend.MATH), or demand "
    "another implementation of torchyard's attention, torchyard.use(attention='attention.tiled')"
)

FAULTS: Final = (
    GraphFault(
        "xpu",
        "aten::_scaled_dot_product_fused_attention_overrideable",
        "2.13",
        0,
        "oneDNN's fused attention waits for an event from outside of the graph, which SYCL refuses",
        _HINT,
        "github.com/intel/torch-xpu-ops/issues/5069, which passes on torch 2.15",
    ),
    GraphFault(
        "xpu",
        "aten::_scaled_dot_product_flash_attention",
        "",
        20260000,
        "flash attention allocates scratch memory of work-groups, which SYCL's graphs do not hold "
        "before oneAPI 2026.0",
        _HINT,
        "github.com/intel/torch-xpu-ops/issues/3142",
    ),
)


def audited(device: str) -> frozenset[str]:
    """Return the operators of which some machine with such a device has a fault."""
    return frozenset(fault.operator for fault in FAULTS if fault.device == device)


def graph_faults(
    device: str, platform: Platform, operators: Iterable[str] | None = None
) -> tuple[GraphFault, ...]:
    """Return the faults of a machine's graphs that are known.

    Args:
        device: torch device type.
        platform: the machine.
        operators: what is to be captured; None: anything.
    """
    wanted = audited(device) if operators is None else set(operators)
    return tuple(
        fault
        for fault in FAULTS
        if fault.device == device and fault.operator in wanted and fault.holds(platform)
    )


def _minor(version: str | None) -> str:
    match = re.match(r"\d+\.\d+", version or "")
    return "" if match is None else match[0]
