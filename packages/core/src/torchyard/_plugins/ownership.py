"""Ownership: which plugin keeps a name, a contract, a device or torch's PrivateUse1 slot.

No rule here looks at who was installed, found or imported first.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from torchyard._contracts.contract import ContractId
from torchyard._contracts.implementation import ReasonCode
from torchyard._errors import PolicyError
from torchyard._plugins.manifest import DefinesEntry, DeviceEntry, ImplementsEntry
from torchyard._plugins.plugin import Plugin, PluginState


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
    """Retire a plugin whose implementations of an op all need versions that are not defined here.

    A component supports every minor of its major up to its own, so a plugin that names no minor, or
    an older one, fits. One that implements a deprecated contract keeps a note of it.
    """
    usable = [
        (plugin, plugin.manifest)
        for plugin in plugins
        if plugin.usable and plugin.manifest is not None
    ]
    defined: dict[str, dict[int, tuple[Plugin, DefinesEntry]]] = {}
    for plugin, manifest in usable:
        for defines in manifest.defines:
            contract = defines.contract
            defined.setdefault(contract.op, {})[contract.version] = plugin, defines
    for plugin, manifest in usable:
        offered: dict[str, list[ImplementsEntry]] = {}
        for implements in manifest.implements:
            offered.setdefault(implements.contract.op, []).append(implements)
        for op, entries in offered.items():
            if op not in defined:
                continue
            if not any(_fits(entry, defined[op]) for entry in entries):
                _retire_misfit(plugin, op, entries, defined[op])
                break
            _note_deprecated(plugin, entries, defined[op])


def _fits(entry: ImplementsEntry, defined: Mapping[int, tuple[Plugin, DefinesEntry]]) -> bool:
    found = defined.get(entry.contract.version)
    return found is not None and entry.minor <= found[1].minor


def _retire_misfit(
    plugin: Plugin,
    op: str,
    entries: Sequence[ImplementsEntry],
    defined: Mapping[int, tuple[Plugin, DefinesEntry]],
) -> None:
    component = next(iter(defined.values()))[0].source
    named = f"{component.distribution or component.name} (here: {component.version})"
    mine = f"{plugin.source.distribution or plugin.name} (here: {plugin.source.version})"
    near = [entry for entry in entries if entry.contract.version in defined]
    there = _versions((f"{op}/{major}", found[1].minor) for major, found in defined.items())
    wanted = _versions((str(entry.contract), entry.minor) for entry in near or entries)
    if near:
        reason = f"needs {wanted} or a newer minor, but the installed component defines {there}"
        remedy = f"a newer {named}, or an older {mine}"
    else:
        reason = f"implements {wanted}, but the installed component defines {there}"
        remedy = f"a {named} that defines {wanted}, or a {mine} that implements {there}"
    plugin.retire(
        PluginState.INCOMPATIBLE,
        ReasonCode.VERSION,
        reason,
        f"install matching versions of the component and the plugin: {remedy}",
    )


def _note_deprecated(
    plugin: Plugin,
    entries: Sequence[ImplementsEntry],
    defined: Mapping[int, tuple[Plugin, DefinesEntry]],
) -> None:
    for contract in sorted({entry.contract for entry in entries}):
        owner, defines = defined.get(contract.version, (None, None))
        if defines is not None and defines.deprecated and owner is not plugin:
            plugin.notes.append(f"implements {contract}, which is deprecated: {defines.deprecated}")


def check_device_owners(plugins: Sequence[Plugin]) -> None:
    """Leave a device type that several declare to the plugin of the same name, or to nobody.

    Several keep it where each declares other architectures.
    """
    claims = [
        (plugin, device)
        for plugin in plugins
        if plugin.usable and plugin.manifest is not None
        for device in plugin.manifest.devices
    ]
    for plugin, device in claims:
        names = sorted(
            other.name
            for other, claimed in claims
            if other is not plugin and _overlap(device, claimed)
        )
        # As for plugin names: the plugin named like the device keeps it.
        if names and plugin.name != device.name:
            whose = f" for {device.architectures}*" if device.architectures else ""
            plugin.retire(
                PluginState.INCOMPATIBLE,
                ReasonCode.DEVICE,
                f"declares device {device.name!r}{whose}, which is also declared by: "
                f"{', '.join(names)}",
                f"block all but one with TORCHYARD_PLUGINS=-{plugin.name}, or uninstall",
            )


def _overlap(one: DeviceEntry, two: DeviceEntry) -> bool:
    """Return whether an accelerator can be both entries'."""
    prefixes = one.architectures, two.architectures
    shorter = min(prefixes, key=len)
    return one.name == two.name and all(prefix.startswith(shorter) for prefix in prefixes)


def check_slot(plugins: Sequence[Plugin], holder: str | None, named: str) -> None:
    """Leave torch's single PrivateUse1 slot to one claimant: the holder, or the one named.

    Who takes it on request only is no claimant until somebody asks.
    """
    claimants = [
        plugin
        for plugin in plugins
        if plugin.usable
        and plugin.manifest is not None
        and plugin.manifest.wants_privateuse1(named, holder)
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


def _versions(found: Iterable[tuple[str, int]]) -> str:
    return ", ".join(f"{name}.{minor}" if minor else name for name, minor in sorted(set(found)))


def _canonical(distribution: str) -> str:
    return re.sub(r"[-_.]+", "-", distribution).lower()
