"""How a device was run: on its hardware, or simulated by another device."""

from __future__ import annotations

from typing import Final

from torchyard import Registry, registry

__all__ = ["EXECUTION", "simulated_devices"]

EXECUTION: Final = "execution"
"""Key of a report's environment that says how its device was simulated or emulated."""


def simulated_devices(known: Registry | None = None) -> frozenset[str]:
    """Return the device types that a manifest declares to be simulated."""
    plugins = (registry() if known is None else known).plugins
    return frozenset(
        device.name
        for plugin in plugins
        if plugin.manifest is not None
        for device in plugin.manifest.devices
        if device.simulated
    )
