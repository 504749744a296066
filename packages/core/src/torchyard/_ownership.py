"""Ownership: which plugin keeps a name, a contract, a device or torch's PrivateUse1 slot.

No rule here looks at who was installed, found or imported first.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from torchyard._contract import ContractId
from torchyard._errors import PolicyError
from torchyard._plugin import Plugin, PluginState
from torchyard._verdict import ReasonCode


def plugin_lists(text: str) -> tuple[frozenset[str] | None, frozenset[str]]:
    """Split ``TORCHYARD_PLUGINS`` into what it allows (None: everything) and what it blocks."""
    names = [part.strip() for part in text.split(",") if part.strip()]
    if names == ["none"]:
        return frozenset(), frozenset()
    if "none" in names:
        raise PolicyError(
            f"TORCHYARD_PLUGINS: 'none' stands alone, got {text!r}; name plugins to load, or "
            f"-plugins to block"
        )
    block = frozenset(name[1:] for name in names if name.startswith("-"))
    allow = frozenset(name for name in names if not name.startswith("-"))
    return allow or None, block


def refuse_duplicates(plugins: Sequence[Plugin]) -> None:
    """Let the distribution ``torchyard-<name>`` keep a name that several announce.

    Only one project can own that distribution name on an index, so no install order decides and
    nobody takes over a name by being installed. Without such an owner nobody gets the name.
    """
    by_name: dict[str, list[Plugin]] = {}
    for plugin in plugins:
        by_name.setdefault(plugin.name, []).append(plugin)
    for name, claimants in by_name.items():
        if len(claimants) == 1:
            continue
        owners = [
            plugin
            for plugin in claimants
            if _canonical(plugin.source.distribution) == _canonical(f"torchyard-{name}")
        ]
        announced = ", ".join(sorted(plugin.source.distribution for plugin in claimants))
        for plugin in claimants:
            if [plugin] != owners:
                plugin.retire(
                    PluginState.INCOMPATIBLE,
                    ReasonCode.PLUGIN,
                    f"duplicate name {name!r}, announced by: {announced}",
                    "uninstall all but one of them",
                )


def check_contract_owners(plugins: Sequence[Plugin]) -> None:
    """Leave each contract to one component: the plugin named like the op, or like its beginning.

    ``attention`` keeps ``attention_backward/1`` too: the shortest such name wins, so that a new
    plugin cannot take a contract over by taking the op's whole name.
    """
    claimants: dict[ContractId, list[Plugin]] = {}
    for plugin in plugins:
        if plugin.usable and plugin.manifest is not None:
            for entry in plugin.manifest.defines:
                claimants.setdefault(entry.contract, []).append(plugin)
    for contract, found in claimants.items():
        if len(found) == 1:
            continue
        named = [plugin for plugin in found if f"{contract.op}_".startswith(f"{plugin.name}_")]
        keeper = min(named, key=lambda plugin: len(plugin.name), default=None)
        names = sorted(plugin.name for plugin in found)
        for plugin in found:
            if plugin is not keeper:
                plugin.retire(
                    PluginState.INCOMPATIBLE,
                    ReasonCode.PLUGIN,
                    f"defines contract {contract}, which is also defined by: "
                    f"{', '.join(name for name in names if name != plugin.name)}",
                    "uninstall all but one of them",
                )


def check_contract_versions(plugins: Sequence[Plugin]) -> None:
    """Retire a plugin that implements only versions of an op which no component here defines."""
    defined: dict[str, set[int]] = {}
    for plugin in plugins:
        if plugin.usable and plugin.manifest is not None:
            for entry in plugin.manifest.defines:
                defined.setdefault(entry.contract.op, set()).add(entry.contract.version)
    for plugin in plugins:
        if not plugin.usable or plugin.manifest is None:
            continue
        offered: dict[str, set[int]] = {}
        for implements in plugin.manifest.implements:
            offered.setdefault(implements.contract.op, set()).add(implements.contract.version)
        for op, versions in offered.items():
            if op in defined and not versions & defined[op]:
                plugin.retire(
                    PluginState.INCOMPATIBLE,
                    ReasonCode.VERSION,
                    f"implements {_versions(op, versions)}, but the installed component defines "
                    f"{_versions(op, defined[op])}",
                    "install matching versions of the component and the plugin",
                )
                break


def check_device_owners(plugins: Sequence[Plugin]) -> None:
    """Leave a device type that several declare to the plugin of the same name, or to nobody."""
    owners: dict[str, list[Plugin]] = {}
    for plugin in plugins:
        if plugin.usable and plugin.manifest is not None:
            for device in plugin.manifest.devices:
                owners.setdefault(device.name, []).append(plugin)
    for device_name, claimants in owners.items():
        names = sorted(plugin.name for plugin in claimants)
        if len(names) > 1:
            for plugin in claimants:
                # As for plugin names: the plugin named like the device keeps it.
                if plugin.name != device_name:
                    plugin.retire(
                        PluginState.INCOMPATIBLE,
                        ReasonCode.DEVICE,
                        f"declares device {device_name!r}, which is also declared by: "
                        f"{', '.join(name for name in names if name != plugin.name)}",
                        f"block all but one with TORCHYARD_PLUGINS=-{plugin.name}, or uninstall",
                    )


def check_slot(plugins: Sequence[Plugin], holder: str | None, named: str) -> None:
    """Leave torch's single PrivateUse1 slot to one claimant: the holder, or the one named."""
    claimants = [
        plugin
        for plugin in plugins
        if plugin.usable and plugin.manifest is not None and plugin.manifest.claims_privateuse1
    ]
    if holder is not None:
        keeper = [plugin for plugin in claimants if _slot_device(plugin) == holder]
        why = f"device {holder!r} holds it in this process"
    elif len(claimants) > 1:
        keeper = [plugin for plugin in claimants if plugin.name == named]
        names = ", ".join(sorted(plugin.name for plugin in claimants))
        why = f"TORCHYARD_PRIVATEUSE1 gives it to {named}" if keeper else f"claimed by: {names}"
    else:
        return
    for plugin in claimants:
        if plugin not in keeper:
            plugin.retire(
                PluginState.UNAVAILABLE,
                ReasonCode.SLOT,
                f"torch has one PrivateUse1 slot per process; {why}",
                f"set TORCHYARD_PRIVATEUSE1={plugin.name} before torch is imported, or uninstall "
                f"the others",
            )


def _slot_device(plugin: Plugin) -> str:
    assert plugin.manifest is not None
    return next(device.name for device in plugin.manifest.devices if device.slot)


def _versions(op: str, versions: set[int]) -> str:
    return ", ".join(f"{op}/{version}" for version in sorted(versions))


def _canonical(distribution: str) -> str:
    return re.sub(r"[-_.]+", "-", distribution).lower()
