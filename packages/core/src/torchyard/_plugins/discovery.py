"""Discovery: from entry points to plugins with a state, without importing any plugin."""

from __future__ import annotations

import importlib.util
import re
import time
import traceback
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from torchyard import arguments
from torchyard._contracts.implementation import ReasonCode
from torchyard._environ import setting
from torchyard._errors import ManifestError
from torchyard._failure import describe
from torchyard._platforms.platform import Platform
from torchyard._plugins.manifest import Manifest, parse_manifest
from torchyard._plugins.ownership import (
    check_contract_owners,
    check_contract_versions,
    check_device_owners,
    check_slot,
    plugin_lists,
    refuse_duplicates,
)
from torchyard._plugins.plugin import Plugin, PluginSource, PluginState

_VALUE: Final = re.compile(
    r"(?P<package>[A-Za-z_][A-Za-z0-9_]*):(?P<file>(?:[A-Za-z0-9_-]+/)*[A-Za-z0-9_.-]+\.toml)"
)


def check_given(sources: object, platform: object, environ: object) -> None:
    """Raise TypeError where what a registry is made of is of another kind."""
    of = "Registry"
    if sources is not None:
        given: tuple[object, ...] = arguments.sequence(of, "sources", sources)
        for place, source in enumerate(given):
            arguments.instance(of, f"sources[{place}]", source, PluginSource)
    if platform is not None:
        arguments.instance(of, "platform", platform, Platform)
    if environ is not None:
        arguments.mapping(of, "environ", environ)


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
    allow, block = plugin_lists(setting("TORCHYARD_PLUGINS", environ))
    refuse_duplicates(plugins)
    for plugin in plugins:
        if plugin.name in block or (allow is not None and plugin.name not in allow):
            plugin.retire(
                PluginState.BLOCKED,
                ReasonCode.BLOCKED,
                "switched off by TORCHYARD_PLUGINS",
                "change TORCHYARD_PLUGINS to load it",
            )
        _read(plugin)
        if plugin.usable and plugin.manifest is not None:
            _check_requirements(plugin, plugin.manifest, core_version, torch_version)
    check_contract_owners(plugins)
    check_contract_versions(plugins)
    check_device_owners(plugins)
    check_slot(plugins, slot_holder, setting("TORCHYARD_PRIVATEUSE1", environ))
    return tuple(plugins)


def _read(plugin: Plugin) -> None:
    """Give a plugin its manifest; one that is out of use already keeps its reason."""
    start = time.perf_counter()
    try:
        plugin.manifest = read_manifest(plugin.source)
    except ManifestError as error:
        if plugin.usable:
            plugin.retire(
                PluginState.FAILED,
                ReasonCode.PLUGIN,
                f"bad manifest ({plugin.source.value}): {error}",
                f"report it to the author of {plugin.source.distribution or plugin.name!r}, or "
                f"uninstall it",
                traceback.format_exc(),
            )
    plugin.discovery_seconds = time.perf_counter() - start


def read_manifest(source: PluginSource) -> Manifest:
    """Find and parse a plugin's manifest without importing its package."""
    if source.problem:
        raise ManifestError(source.problem)
    match = _VALUE.fullmatch(source.value)
    if match is None:
        raise ManifestError(
            f"entry point {source.name!r}: expected 'package:file.toml' with a top-level package, "
            f"got {source.value!r}"
        )
    try:
        spec = importlib.util.find_spec(match["package"])
    # Whatever finders are installed run here, and one of them may belong to a broken plugin.
    except Exception as error:
        raise ManifestError(
            f"package {match['package']!r}: cannot be found: {describe(error)}"
        ) from error
    if spec is None or not spec.submodule_search_locations:
        raise ManifestError(f"package {match['package']!r}: expected a package, found none")
    for folder in spec.submodule_search_locations:
        try:
            text = Path(folder, match["file"]).read_text(encoding="utf-8")
        except (FileNotFoundError, NotADirectoryError):
            continue
        except (OSError, UnicodeDecodeError) as error:
            raise ManifestError(f"{match['file']}: cannot be read: {error}") from error
        return parse_manifest(text, expected_name=source.name)
    raise ManifestError(f"{match['file']}: expected inside package {match['package']!r}, not there")


def _check_requirements(
    plugin: Plugin, manifest: Manifest, core_version: str, torch_version: str | None
) -> None:
    requires = manifest.requires
    if not _satisfies(core_version, requires.torchyard):
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
        if not _satisfies(torch_version, requires.torch):
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


def _findable(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except Exception:
        return False


def _satisfies(version: str, specifier: str) -> bool:
    from packaging.specifiers import SpecifierSet
    from packaging.version import InvalidVersion, Version

    try:
        return SpecifierSet(specifier).contains(Version(version), prereleases=True)
    except InvalidVersion:
        return False
