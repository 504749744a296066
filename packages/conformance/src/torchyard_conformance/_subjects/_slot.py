"""Which plugin has torch's PrivateUse1 slot where another is judged."""

from __future__ import annotations

from torchyard import Plugin, registry

__all__ = ["slot_holder"]


def slot_holder(plugin: Plugin) -> str | None:
    """Return the plugin whose device is on torch's PrivateUse1 slot, or None.

    It is the plugin itself, or the one that owns a device which the plugin names for what it
    implements: kernels for another plugin's device are judged on that device.
    """
    if plugin.manifest is None:
        return None
    if plugin.manifest.claims_privateuse1:
        return plugin.name
    named = {name for entry in plugin.manifest.implements for name in entry.devices}
    for other in registry().plugins:
        if other.manifest is None or not other.manifest.claims_privateuse1:
            continue
        if named & {entry.name for entry in other.manifest.devices}:
            return other.name
    return None
