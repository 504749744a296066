"""Implementations that the installed plugins offer: imported when a contract is first asked for."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torchyard._contracts.contract import ContractId
from torchyard._contracts.implementation import Implementation, ReasonCode, Verdict
from torchyard._platforms.platform import Platform
from torchyard._plugins.activation import LibraryImportError, PluginCodeError
from torchyard._plugins.catalog import Catalog
from torchyard._plugins.check import Check
from torchyard._plugins.device_status import DeviceStatus
from torchyard._plugins.manifest import ImplementsEntry
from torchyard._plugins.plugin import Plugin, PluginSource, PluginState
from torchyard._registry.decision import Candidate, Outcome


class Offers(Catalog):
    """A catalog that also imports what plugins offer: implementations, definitions, commands.

    Args:
        sources: the announced plugins; None reads the installed distributions.
        platform: the machine to decide for; None probes this one.
        environ: read instead of this process's environment and configuration.
    """

    def __init__(
        self,
        sources: Sequence[PluginSource] | None = None,
        *,
        platform: Platform | None = None,
        environ: Mapping[str, str] | None = None,
    ) -> None:
        self._offers: dict[tuple[str, str, str], tuple[Implementation, ...]] = {}
        super().__init__(sources, platform=platform, environ=environ)

    def implementations(
        self, contract: ContractId, device: str
    ) -> tuple[tuple[Implementation, ...], tuple[Candidate, ...]]:
        """Return what usable plugins offer, and a candidate for each plugin that offers nothing."""
        offered: list[Implementation] = []
        absent: list[Candidate] = []
        for plugin in self.plugins:
            if plugin.manifest is None:
                # Nobody knows what it would have implemented, so it may have been this.
                absent.append(_absent(plugin))
                continue
            entries = [
                entry
                for entry in plugin.manifest.implements
                if entry.contract.op == contract.op and entry.covers(device)
            ]
            if not plugin.usable:
                # Another version of the contract may be the very reason why.
                absent.extend([_absent(plugin)] if entries else [])
                continue
            try:
                with self._guarded():
                    found = [
                        item
                        for entry in entries
                        if entry.contract == contract and self._fits(entry)
                        for item in self._offer(plugin, entry)
                    ]
                    self._once(plugin, found)
                offered.extend(found)
            except PluginCodeError:
                absent.append(_absent(plugin))
        return tuple(offered), tuple(absent)

    def load(self, implementation: Implementation) -> Callable[..., Any]:
        """Call an implementation's ``load``.

        A library that cannot be imported costs the implementation that needs it: its verdicts are
        refusals from then on, and its plugin's other implementations stay.

        Raises:
            PluginCodeError: ``load`` failed, which may have taken the plugin out of use.
        """
        with self._guarded():
            plugin = self.plugin(implementation.plugin)
            try:
                return self._activator.load_implementation(plugin, implementation)
            except LibraryImportError as error:
                plugin.notes.append(str(error))
                self._refuse(implementation, error)
                raise

    def activate(self, plugin: Plugin) -> None:
        """Import everything that a plugin offers, and call its hooks; its state says how it went.

        ``load`` of an implementation is not called: it may need a device that is not here. Modules
        for a contract that no component here defines are not imported, as they cannot be used.
        """
        if plugin.manifest is None:
            return
        manifest = plugin.manifest
        try:
            with self._guarded():
                for entry in filter(self._asked_for, manifest.implements):
                    self._offer(plugin, entry)
                for defined in manifest.defines:
                    self._activator.load_attribute(plugin, defined.module, "DEFINITIONS")
                for command in manifest.commands:
                    self.load_command(plugin, command)
                for device in filter(lambda device: device.module, manifest.devices):
                    self._activator.call_for_one(
                        plugin,
                        device.module,
                        "torchyard_probe_device",
                        DeviceStatus,
                        device=device.name,
                    )
                if manifest.doctor:
                    self._activator.call_for_sequence(
                        plugin, manifest.doctor, "torchyard_checks", Check
                    )
        except PluginCodeError:
            return

    def _refuse(self, implementation: Implementation, error: LibraryImportError) -> None:
        """Have an implementation refuse every request for the library that it lacks."""
        library = error.module.partition(".")[0]
        verdict = Verdict.no(
            ReasonCode.DEPENDENCY,
            str(error),
            f"install {library!r}, or repair its installation, and start again" if library else "",
        )
        for key, offered in self._offers.items():
            self._offers[key] = tuple(
                dataclasses.replace(item, supports=lambda request, platform: verdict)
                if (item.contract, item.name) == (implementation.contract, implementation.name)
                else item
                for item in offered
            )
        self._plugins_changed()

    def _fits(self, entry: ImplementsEntry) -> bool:
        """Return whether the component is new enough for a module; yes where there is none."""
        minor = self.minor(entry.contract)
        return minor is None or entry.minor <= minor

    def _asked_for(self, entry: ImplementsEntry) -> bool:
        """Return whether a component is here that may ask for a module."""
        return self.minor(entry.contract) is not None and self._fits(entry)

    def _offer(self, plugin: Plugin, entry: ImplementsEntry) -> tuple[Implementation, ...]:
        contract = str(entry.contract)
        key = (plugin.name, entry.module, contract)
        if plugin.usable and key in self._offers:
            return self._offers[key]
        offered = self._activator.call_for_sequence(
            plugin,
            entry.module,
            "torchyard_implementations",
            Implementation,
            contract=contract,
            minor=self.minor(entry.contract) or 0,
        )
        for item in offered:
            if item.plugin != plugin.name or item.contract != contract:
                self._broke_promise(
                    plugin,
                    f"expected implementations of {contract} named '{plugin.name}.*', got "
                    f"{item.name!r} of {item.contract}",
                )
        # What needs a minor knows it.
        offered = tuple(
            dataclasses.replace(item, minor=entry.minor) if item.minor < entry.minor else item
            for item in offered
        )
        self._offers[key] = offered
        return offered

    def _once(self, plugin: Plugin, offered: list[Implementation]) -> None:
        names = [item.name for item in offered]
        repeated = sorted({name for name in names if names.count(name) > 1})
        if repeated:
            self._broke_promise(plugin, f"expected each name once, got {repeated} more than once")

    def _broke_promise(self, plugin: Plugin, text: str) -> None:
        plugin.retire(
            PluginState.FAILED,
            ReasonCode.PLUGIN,
            f"hook torchyard_implementations: {text}",
            f"report it to the author of {plugin.source.distribution or plugin.name!r}",
        )
        raise PluginCodeError(plugin.reason)


def _absent(plugin: Plugin) -> Candidate:
    return Candidate(
        f"{plugin.name}.*",
        Outcome.REFUSED,
        Verdict.no(
            plugin.code or ReasonCode.PLUGIN,
            f"plugin {plugin.name} is {plugin.state}: {plugin.reason}",
            plugin.hint,
        ),
    )
