"""The catalog: what the installed plugins declare, and what they say of their devices."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import Any, Final

from torchyard._contracts.contract import ContractDefinition, ContractId
from torchyard._contracts.optimization import Optimization
from torchyard._environ import setting
from torchyard._errors import UnknownContractError, UnknownPluginError
from torchyard._platforms.accelerators import with_accelerators
from torchyard._platforms.platform import Platform, imported_torch, privateuse1_name, probe_platform
from torchyard._plugins.activation import Activator, PluginCodeError
from torchyard._plugins.check import Check, CheckStatus
from torchyard._plugins.device_status import DeviceStatus
from torchyard._plugins.discovery import check_given, discover
from torchyard._plugins.installed import installed_sources
from torchyard._plugins.manifest import CommandEntry, DefinesEntry, Order
from torchyard._plugins.ownership import check_slot
from torchyard._plugins.packages import owner_of
from torchyard._plugins.plugin import Plugin, PluginSource
from torchyard._plugins.workload import SpeedLimits, Workload
from torchyard._version import __version__

_ANY: Final = "*"


class Catalog:
    """What is installed. Making one reads manifests; only asking for an offer imports a plugin.

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
        check_given(sources, platform, environ)
        self._environ = environ
        self._probes = platform is None
        self._saw_torch = imported_torch() is not None
        self._platform = platform or probe_platform()
        self._activator = Activator()
        self._lock = threading.RLock()
        self.plugins: Final = discover(
            installed_sources() if sources is None else sources,
            core_version=__version__,
            torch_version=self._platform.torch,
            slot_holder=privateuse1_name() if self._probes else None,
            environ=environ,
        )

    @property
    def platform(self) -> Platform:
        """The machine that this registry decides for."""
        if self._probes and not self._saw_torch and imported_torch() is not None:
            self._look_again()
        return self._platform

    @property
    def environ(self) -> Mapping[str, str] | None:
        """What is read instead of this process's environment; None where that is read."""
        return self._environ

    def plugin(self, name: str) -> Plugin:
        """Return a plugin by name; LookupError lists the known ones.

        Where several distributions announce a name, the one that keeps it is returned.
        """
        found = [plugin for plugin in self.plugins if plugin.name == name]
        if not found:
            known = ", ".join(sorted({plugin.name for plugin in self.plugins})) or "none"
            raise UnknownPluginError(f"plugin {name!r}: not installed; installed plugins: {known}")
        return next((plugin for plugin in found if plugin.usable), found[0])

    def contracts(self) -> tuple[ContractId, ...]:
        """Return the contracts that installed components define, sorted."""
        return tuple(
            sorted(
                entry.contract
                for plugin in self._usable()
                for entry in plugin.manifest.defines  # type: ignore[union-attr]
            )
        )

    def contract(self, text: str) -> ContractId:
        """Read ``op/version`` or ``op`` (its newest version) of an installed component."""
        known = self.contracts()
        matches = [item for item in known if text in {str(item), item.op}]
        if not matches:
            names = ", ".join(map(str, known)) or "none; install a component"
            raise UnknownContractError(
                f"contract {text!r}: no installed component defines it{owner_of(text)}; known "
                f"contracts: {names}"
            )
        return matches[-1]

    def definition(self, contract: ContractId) -> ContractDefinition:
        """Import and return a component's definition of a contract."""
        found = self._defines(contract)
        if found is None:
            raise UnknownContractError(
                f"contract {str(contract)!r}: no usable component defines it"
                f"{owner_of(str(contract))}; `torchyard plugins` shows which are installed"
            )
        return self._definition(found[0], found[1].module, contract)

    def minor(self, contract: ContractId) -> int | None:
        """Return the newest minor of a contract that is defined here; None where none defines it.

        Read from the component's manifest: nothing is imported.
        """
        found = self._defines(contract)
        return None if found is None else found[1].minor

    def commands(self) -> tuple[tuple[Plugin, CommandEntry], ...]:
        """Return the subcommands that plugins add to the command line, sorted by name."""
        found = [
            (plugin, command)
            for plugin in self._usable()
            for command in plugin.manifest.commands  # type: ignore[union-attr]
        ]
        return tuple(sorted(found, key=lambda item: (item[1].name, item[0].name)))

    def load_command(self, plugin: Plugin, command: CommandEntry) -> Any:
        """Import a plugin's subcommand; PluginCodeError where its module is broken."""
        module, _, attribute = command.target.partition(":")
        with self._guarded():
            return self._activator.load_attribute(plugin, module, attribute)

    def devices(self) -> tuple[tuple[Plugin, str], ...]:
        """Return the device types that usable plugins own, with their plugin, sorted."""
        return tuple(
            sorted(
                (
                    (plugin, device.name)
                    for plugin in self._usable()
                    for device in plugin.manifest.devices  # type: ignore[union-attr]
                ),
                key=lambda item: item[1],
            )
        )

    def probe_device(self, device: str) -> DeviceStatus:
        """Ask the plugins that own a device type whether it can be used now.

        Where several own it, each for accelerators of its own, the first that has one answers.
        """
        owners = [plugin for plugin, name in self.devices() if name == device]
        found = [self.probe_device_of(plugin, device) for plugin in owners]
        if not found:
            text = "no usable plugin owns this device type"
            return DeviceStatus(device, False, text, "see `torchyard plugins`", 0)
        return next((status for status in found if status.available), found[0])

    def probe_device_of(self, plugin: Plugin, device: str) -> DeviceStatus:
        """Ask one of the plugins that own a device type whether it can be used now."""
        assert plugin.manifest is not None
        module = next(d.module for d in plugin.manifest.devices if d.name == device)
        if not module:
            here = device in self.platform.devices
            text = "torch has it" if here else "torch does not offer it in this process"
            return DeviceStatus(device, here, text, count=int(here))
        try:
            with self._guarded():
                return self._activator.call_for_one(
                    plugin, module, "torchyard_probe_device", DeviceStatus, device=device
                )
        except PluginCodeError as error:
            return DeviceStatus(device, False, str(error), plugin.hint, 0)

    def checks(self, plugin: Plugin) -> tuple[Check, ...]:
        """Return a plugin's own checks; what its code raises becomes a failed check."""
        if plugin.manifest is None or not plugin.manifest.doctor or not plugin.usable:
            return ()
        try:
            with self._guarded():
                return self._activator.call_for_sequence(
                    plugin, plugin.manifest.doctor, "torchyard_checks", Check, retire=False
                )
        except PluginCodeError as error:
            return (Check("checks", CheckStatus.FAIL, str(error), "report it to its author"),)

    def speed_limits(self, device: str) -> SpeedLimits | str:
        """Return what a device can do, measured by the plugin that owns it; or why not."""
        for plugin, name in self.devices():
            assert plugin.manifest is not None
            if name != device or not plugin.manifest.measure.limits:
                continue
            try:
                with self._guarded():
                    return self._activator.call_for_one(
                        plugin,
                        plugin.manifest.measure.limits,
                        "torchyard_speed_limits",
                        SpeedLimits,
                        device=device,
                    )
            except PluginCodeError as error:
                return str(error)
        return f"no usable plugin measures what {device} can do"

    def workloads(self, plugin: Plugin, device: str) -> tuple[Workload, ...]:
        """Return a component's work on a device; PluginCodeError where its module is broken."""
        if plugin.manifest is None or not plugin.manifest.measure.workloads or not plugin.usable:
            return ()
        with self._guarded():
            return self._activator.call_for_sequence(
                plugin,
                plugin.manifest.measure.workloads,
                "torchyard_workloads",
                Workload,
                retire=False,
                device=device,
            )

    def optimizations(self, plugin: Plugin) -> tuple[Optimization, ...]:
        """Return what a plugin offers to :func:`torchyard.optimize`; PluginCodeError if broken."""
        if plugin.manifest is None or not plugin.manifest.optimize or not plugin.usable:
            return ()
        with self._guarded():
            return self._activator.call_for_sequence(
                plugin,
                plugin.manifest.optimize,
                "torchyard_optimizations",
                Optimization,
                retire=False,
            )

    def order(self, contract: ContractId, device: str) -> tuple[str, ...]:
        """Return the device's list for a contract.

        The list of the plugin that owns the device comes first, the one for the platform's
        architecture or else the one for any; behind it the list of the component that defines the
        contract, the one for the device or else the one for any device.
        """
        accelerator = self._platform.accelerator(device)
        architecture = "" if accelerator is None else accelerator.architecture
        owned: list[Order] = []
        defined: list[Order] = []
        for plugin in self.plugins:
            if plugin.manifest is None or not plugin.ranks:
                continue
            lists = _of_architecture(plugin.manifest.orders, contract, architecture)
            owned += [
                order
                for order in lists
                if order.device == device and plugin.manifest.declares(device, architecture)
            ][:1]
            if plugin.manifest.defines_contract(contract):
                defined += [
                    *(order for order in lists if order.device == device),
                    *(order for order in lists if order.device == _ANY),
                ]
        names = [name for order in [*owned, *defined[:1]] for name in order.names]
        return tuple(dict.fromkeys(names))

    def _guarded(self) -> _Guard:
        """Hold the lock around code of a plugin, and notice when that code failed the plugin."""
        return _Guard(self)

    def _plugins_changed(self) -> None:
        """Forget what was concluded from the plugins' states or from the machine."""

    def _read_accelerators(self, device: str) -> None:
        """Add the facts of this machine's accelerators once a request is for such a device."""
        if self._probes and self._platform.accelerator(device) is None:
            self._platform = with_accelerators(self._platform, device)

    def _look_again(self) -> None:
        """Probe again once torch is imported: its devices, and who has the PrivateUse1 slot."""
        with self._lock:
            self._saw_torch = True
            self._platform = probe_platform()
            check_slot(
                self.plugins, privateuse1_name(), setting("TORCHYARD_PRIVATEUSE1", self._environ)
            )
            self._plugins_changed()

    def _usable(self) -> list[Plugin]:
        return [plugin for plugin in self.plugins if plugin.usable and plugin.manifest is not None]

    def _defines(self, contract: ContractId) -> tuple[Plugin, DefinesEntry] | None:
        for plugin in self._usable():
            for entry in plugin.manifest.defines:  # type: ignore[union-attr]
                if entry.contract == contract:
                    return plugin, entry
        return None

    def _definition(self, plugin: Plugin, module: str, contract: ContractId) -> ContractDefinition:
        definition: object = None
        try:
            with self._guarded():
                table = self._activator.load_attribute(plugin, module, "DEFINITIONS")
        except PluginCodeError as error:
            raise UnknownContractError(f"contract {str(contract)!r}: {error}") from error
        if isinstance(table, Mapping):
            definition = table.get(str(contract))
        if not isinstance(definition, ContractDefinition):
            raise UnknownContractError(
                f"contract {str(contract)!r}: module {module!r} must hold it in DEFINITIONS as a "
                f"ContractDefinition"
            )
        return definition


def _of_architecture(
    orders: Sequence[Order], contract: ContractId, architecture: str
) -> list[Order]:
    """Return a contract's lists for an architecture, before those for any."""
    lists = [order for order in orders if order.contract == contract]
    exact = [order for order in lists if architecture and order.architecture == architecture]
    return [*exact, *(order for order in lists if not order.architecture)]


class _Guard:
    """Hold a catalog's lock; on the way out tell it whether a plugin's state was changed."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._lock = catalog._lock
        self._usable: list[bool] = []

    def __enter__(self) -> None:
        self._lock.acquire()
        self._usable = [plugin.usable for plugin in self._catalog.plugins]

    def __exit__(self, *_: object) -> None:
        try:
            if self._usable != [plugin.usable for plugin in self._catalog.plugins]:
                self._catalog._plugins_changed()
        finally:
            self._lock.release()
