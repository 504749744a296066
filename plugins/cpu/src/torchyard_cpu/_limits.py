"""What the processor reaches when it does one thing only, for ``torchyard doctor --measure``."""

from __future__ import annotations

from typing import Final

from torchyard import SpeedLimits, hookimpl

__all__ = ["torchyard_speed_limits"]

# Of each measurement. Memory's rate varies; arithmetic reaches its best rate soon.
_ARITHMETIC_SECONDS: Final = 0.5
_MEMORY_SECONDS: Final = 1.5


@hookimpl
def torchyard_speed_limits(device: str) -> SpeedLimits:
    """Measure the processor on as many threads as torch uses."""
    import torch

    from torchyard_cpu import _native

    threads = torch.get_num_threads()
    return SpeedLimits(
        {
            **_native.arithmetic_limits(threads, _ARITHMETIC_SECONDS),
            "read": _native.read_limit(threads, _MEMORY_SECONDS),
            "update": _native.update_limit(threads, _MEMORY_SECONDS),
        },
        tune="torchyard autotune",
    )
