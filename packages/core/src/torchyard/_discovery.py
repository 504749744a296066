"""Discovery: from entry points to plugins with a state, without importing any plugin."""

from __future__ import annotations

import importlib.util
import re
import traceback
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from torchyard._environ import setting
from torchyard._errors import ManifestError, PolicyError
from torchyard._manifest import Manifest, parse_manifest
from torchyard._plugin import Plugin, PluginSource, PluginState
from torchyard._verdict import ReasonCode

GROUP: Final = "torchyard.plugins"
_VALUE: Final = re.compile(r"(?P<package>[A-Za-z_][A-Za-z0-9_]*):(?P<file>[A-Za-z0-9_./-]+\.toml)")


def installed_sources() -> tuple[PluginSource, ...]:
    """Return every plugin that an installed distribution announces, sorted."""
    from importlib.metadata import entry_points

    sources = set()
    for entry in entry_points(group=GROUP):
        distribution = entry.dist
        sources.add(
            PluginSource(
                name=entry.name,
                value=entry.value,
                distribution="" if distribution is None else distribution.name,
                version="" if distribution is None else distribution.version,
            )
        )
    return tuple(sorted(sources, key=lambda source: (source.name, source.distribution)))


def discover(
    sources: Iterable[PluginSource],
    *,
    core_version: str,
    torch_version: str | None,
    slot_holder: str | None,
    environ: Mapping[str, str] | None = None,
) -> tuple[Plugin, ...]:
    """Read the manifests and give every plugin its first state.

    Args:
        sources: what is announced.
        core_version: the version that ``requires.torchyard`` is held against.
        torch_version: the installed torch, or None.
        slot_holder: the device name that holds torch's PrivateUse1 slot in this process, or None.
        environ: read instead of this process's environment.
    """
    plugins = [Plugin(source) for source in sources]
    allow, block = _lists(setting("TORCHYARD_PLUGINS", environ))
    _refuse_duplicates(plugins)
    for plugin in plugins:
        if not plugin.usable:
            continue
        if plugin.name in block or (allow is not None and plugin.name not in allow):
            plugin.retire(
                PluginState.BLOCKED,
                ReasonCode.BLOCKED,
                "switched off by TORCHYARD_PLUGINS",
                "change TORCHYARD_PLUGINS to load it",
            )
            continue
        try:
            plugin.manifest = read_manifest(plugin.source)
        except ManifestError as error:
            plugin.retire(
                PluginState.FAILED,
                ReasonCode.PLUGIN,
                f"bad manifest ({plugin.source.value}): {error}",
                f"report it to the author of {plugin.source.distribution or plugin.name!r}, or "
                f"uninstall it",
                traceback.format_exc(),
            )
            continue
        _check_requirements(plugin, plugin.manifest, core_version, torch_version)
    _check_contract_versions(plugins)
    _check_device_owners(plugins)
    _check_slot(plugins, slot_holder, setting("TORCHYARD_PRIVATEUSE1", environ))
    return tuple(plugins)


def read_manifest(source: PluginSource) -> Manifest:
    """Find and parse a plugin's manifest without importing its package."""
    match = _VALUE.fullmatch(source.value)
    if match is None:
        raise ManifestError(
            f"entry point {source.name!r}: expected 'package:file.toml' with a top-level package, "
            f"got {source.value!r}"
        )
    try:
        spec = importlib.util.find_spec(match["package"])
    except (ImportError, ValueError) as error:
        raise ManifestError(f"package {match['package']!r}: cannot be found: {error}") from error
    if spec is None or not spec.submodule_search_locations:
        raise ManifestError(f"package {match['package']!r}: expected a package, found none")
    for folder in spec.submodule_search_locations:
        path = Path(folder, match["file"])
        if path.is_file():
            try:
                text = path.read_text(encoding="utf-8")
            except (OSError, UnicodeDecodeError) as error:
                raise ManifestError(f"{match['file']}: cannot be read: {error}") from error
            return parse_manifest(text, expected_name=source.name)
    raise ManifestError(f"{match['file']}: expected inside package {match['package']!r}, not there")


def _lists(text: str) -> tuple[frozenset[str] | None, frozenset[str]]:
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


def _refuse_duplicates(plugins: list[Plugin]) -> None:
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


def _check_requirements(
    plugin: Plugin, manifest: Manifest, core_version: str, torch_version: str | None
) -> None:
    from packaging.specifiers import SpecifierSet

    requires = manifest.requires
    if not SpecifierSet(requires.torchyard).contains(core_version, prereleases=True):
        plugin.retire(
            PluginState.INCOMPATIBLE,
            ReasonCode.VERSION,
            f"needs torchyard {requires.torchyard}, found {core_version}",
            f"pip install 'torchyard{requires.torchyard}', or another version of the plugin",
        )
        return
    if requires.torch:
        if torch_version is None:
            plugin.retire(
                PluginState.UNAVAILABLE,
                ReasonCode.DEPENDENCY,
                f"needs torch {requires.torch}, found none",
                "install torch",
            )
            return
        if not SpecifierSet(requires.torch).contains(torch_version, prereleases=True):
            plugin.retire(
                PluginState.INCOMPATIBLE,
                ReasonCode.VERSION,
                f"needs torch {requires.torch}, found {torch_version}",
                "install a torch in that range, or another version of the plugin",
            )
            return
    missing = [name for name in requires.modules if not _findable(name)]
    if missing:
        plugin.retire(
            PluginState.UNAVAILABLE,
            ReasonCode.DEPENDENCY,
            f"needs the modules {missing}, which are not installed",
            f"install them, or reinstall {plugin.source.distribution or plugin.name} with its "
            f"dependencies",
        )


def _check_contract_versions(plugins: list[Plugin]) -> None:
    defined: dict[str, set[int]] = {}
    for plugin in plugins:
        if plugin.usable and plugin.manifest is not None:
            for entry in plugin.manifest.defines:
                defined.setdefault(entry.contract.op, set()).add(entry.contract.version)
    for plugin in plugins:
        if not plugin.usable or plugin.manifest is None:
            continue
        for implements in plugin.manifest.implements:
            versions = defined.get(implements.contract.op)
            if versions is not None and implements.contract.version not in versions:
                known = ", ".join(f"{implements.contract.op}/{v}" for v in sorted(versions))
                plugin.retire(
                    PluginState.INCOMPATIBLE,
                    ReasonCode.VERSION,
                    f"implements {implements.contract}, but the installed component defines "
                    f"{known}",
                    "install matching versions of the component and the plugin",
                )
                break


def _check_device_owners(plugins: list[Plugin]) -> None:
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


def _check_slot(plugins: list[Plugin], holder: str | None, named: str) -> None:
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


def _findable(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except (ImportError, ValueError):
        return False


def _canonical(distribution: str) -> str:
    return re.sub(r"[-_.]+", "-", distribution).lower()
