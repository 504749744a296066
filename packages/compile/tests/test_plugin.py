"""The package is a plugin of the registry like any other."""

from __future__ import annotations

from torchyard import PluginState, registry


def test_the_registry_reads_its_manifest() -> None:
    plugin = next(item for item in registry().plugins if item.name == "compile")
    assert plugin.state in {PluginState.DISCOVERED, PluginState.ACTIVE}, plugin.reason
