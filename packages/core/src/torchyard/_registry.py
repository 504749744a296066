"""The registry: plugins, contracts and cached decisions of this process."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

from torchyard._activation import Activator, PluginCodeError
from torchyard._contract import ContractDefinition, ContractId, Request
from torchyard._decision import Candidate, Decision, Outcome, Source
from torchyard._device import DeviceStatus
from torchyard._discovery import discover, installed_sources
from torchyard._environ import setting
from torchyard._errors import UnknownContractError
from torchyard._implementation import Implementation
from torchyard._lock import read_dump
from torchyard._manifest import CommandEntry, Order
from torchyard._platform import Platform, privateuse1_name, probe_platform
from torchyard._plugin import Plugin, PluginSource, PluginState
from torchyard._policy import Policy, demanded, parse_enlisted
from torchyard._resolver import decide, require
from torchyard._verdict import ReasonCode, Verdict
from torchyard._version import __version__

_LOG: Final = logging.getLogger("torchyard")
_ANY: Final = "*"


class Registry:
    """Everything that torchyard knows of what is installed.

    Making one reads the plugins' manifests and imports no plugin. Use :func:`registry` for this
    process's own; make one by hand to decide for another machine or another set of plugins.

    Args:
        sources: the announced plugins; None reads the installed distributions.
        platform: the machine to decide for; None probes this one.
        environ: read instead of this process's environment and configuration.
    """

    def __init__(
        self,
        sources: Iterable[PluginSource] | None = None,
        *,
        platform: Platform | None = None,
        environ: Mapping[str, str] | None = None,
    ) -> None:
        self._environ = environ
        self._platform = platform or probe_platform()
        self._activator = Activator()
        self._lock = threading.RLock()
        self._offers: dict[tuple[str, str, str], tuple[Implementation, ...]] = {}
        self._decisions: dict[object, Decision] = {}
        self._loaded: dict[str, Callable[..., Any]] = {}
        self._noticed: set[tuple[str, str, tuple[str, ...]]] = set()
        self.plugins: Final = discover(
            installed_sources() if sources is None else sources,
            core_version=__version__,
            torch_version=self._platform.torch,
            slot_holder=privateuse1_name() if platform is None else None,
            environ=environ,
        )

    @property
    def platform(self) -> Platform:
        """The machine that this registry decides for."""
        return self._platform

    def plugin(self, name: str) -> Plugin:
        """Return a plugin by name; LookupError lists the known ones.

        Where several distributions announce a name, the one that keeps it is returned.
        """
        found = [plugin for plugin in self.plugins if plugin.name == name]
        if not found:
            known = ", ".join(sorted({plugin.name for plugin in self.plugins})) or "none"
            raise LookupError(f"plugin {name!r}: not installed; installed plugins: {known}")
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
                f"contract {text!r}: no installed component defines it; known contracts: {names}"
            )
        return matches[-1]

    def definition(self, contract: ContractId) -> ContractDefinition:
        """Import and return a component's definition of a contract."""
        for plugin in self._usable():
            for entry in plugin.manifest.defines:  # type: ignore[union-attr]
                if entry.contract == contract:
                    return self._definition(plugin, entry.module, contract)
        raise UnknownContractError(f"contract {str(contract)!r}: no usable component defines it")

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
        with self._lock:
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
        """Ask the plugin that owns a device type whether it can be used now."""
        for plugin, name in self.devices():
            if name != device:
                continue
            assert plugin.manifest is not None
            module = next(d.module for d in plugin.manifest.devices if d.name == device)
            if not module:
                return DeviceStatus(device, True, f"declared by plugin {plugin.name!r}")
            try:
                with self._lock:
                    return self._activator.call_for_one(
                        plugin, module, "torchyard_probe_device", DeviceStatus, device=device
                    )
            except PluginCodeError as error:
                return DeviceStatus(device, False, str(error), plugin.hint, 0)
        return DeviceStatus(
            device, False, "no usable plugin owns this device type", "see `torchyard plugins`", 0
        )

    def order(self, contract: ContractId, device: str) -> tuple[str, ...]:
        """Return the device's list for a contract.

        The plugin that owns the device is asked first, then the component that defines the
        contract: its list for the device, then its list for any device.
        """
        owners = [plugin for plugin, name in self.devices() if name == device]
        orders = {(plugin.name, order.device): order for plugin, order in self._orders(contract)}
        for owner in owners:
            if (owner.name, device) in orders:
                return orders[owner.name, device].names
        for key in (device, _ANY):
            for (_, listed), order in sorted(orders.items()):
                if listed == key:
                    return order.names
        return ()

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
            modules = [
                entry.module
                for entry in plugin.manifest.implements
                if entry.contract == contract and entry.serves(device)
            ]
            for module in modules:
                try:
                    offered.extend(self._offer(plugin, module, str(contract)))
                except PluginCodeError:
                    absent.append(_absent(plugin))
                    break
        return tuple(offered), tuple(absent)

    def decide(
        self, contract: str | ContractId, request: Request, *, use: str | None = None
    ) -> Decision:
        """Decide which implementation serves a request, without asking that one does.

        Args:
            contract: ``op/version`` or a parsed one.
            request: what is asked for.
            use: demand this implementation, as a call's own argument would.

        Returns:
            The decision, cached per request and policy; ``chosen`` may be None.
        """
        parsed = ContractId.parse(contract) if isinstance(contract, str) else contract
        demand = demanded(parsed, use, self._environ)
        enlisted = setting("TORCHYARD_ENLIST", self._environ)
        lock_path = setting("TORCHYARD_LOCK", self._environ)
        key = (parsed, request, demand, enlisted, lock_path)
        decision = self._decisions.get(key)
        if decision is not None:
            return decision
        with self._lock:
            implementations, absent = self.implementations(parsed, request.device)
            policy = Policy(
                use=demand,
                enlist=parse_enlisted(enlisted),
                locked=self._locked(lock_path, str(parsed)),
                lock_path=lock_path,
            )
            decision = decide(
                str(parsed),
                request,
                self._platform,
                implementations,
                self.order(parsed, request.device),
                policy=policy,
                absent=absent,
            )
            self._decisions[key] = decision
        return decision

    def resolve(
        self, contract: str | ContractId, request: Request, *, use: str | None = None
    ) -> Callable[..., Any]:
        """Return the callable that serves a request.

        Raises:
            UnsupportedError: nothing may serve it; the message holds the whole trace.
        """
        decision = self.decide(contract, request, use=use)
        chosen = require(decision)
        self._notice(decision)
        loaded = self._loaded.get(chosen.name + decision.contract)
        if loaded is None:
            with self._lock:
                loaded = self._loaded.setdefault(chosen.name + decision.contract, chosen.load())
        return loaded

    def _notice(self, decision: Decision) -> None:
        """Log once what an automatic choice skipped: a choice is never silently a slower one."""
        skipped = decision.skipped()
        if decision.source is not Source.ORDER or not skipped:
            return
        key = (
            decision.contract,
            decision.name,
            tuple(f"{candidate.name} {candidate.verdict.code}" for candidate in skipped),
        )
        if key in self._noticed or setting("TORCHYARD_NOTICES", self._environ) == "off":
            return
        self._noticed.add(key)
        reasons = "; ".join(
            f"{candidate.name} ({candidate.verdict.code}: {candidate.verdict.text})"
            for candidate in skipped
        )
        _LOG.warning(
            "%s on %s is served by %s; skipped %s. `torchyard explain` shows the whole trace; "
            "TORCHYARD_NOTICES=off silences this.",
            decision.contract,
            decision.request.device,
            decision.name,
            reasons,
        )

    def _usable(self) -> list[Plugin]:
        return [plugin for plugin in self.plugins if plugin.usable and plugin.manifest is not None]

    def _orders(self, contract: ContractId) -> list[tuple[Plugin, Order]]:
        return [
            (plugin, order)
            for plugin in self._usable()
            for order in plugin.manifest.orders  # type: ignore[union-attr]
            if order.contract == contract
        ]

    def _definition(self, plugin: Plugin, module: str, contract: ContractId) -> ContractDefinition:
        with self._lock:
            try:
                table = self._activator.load_attribute(plugin, module, "DEFINITIONS")
                definition = table[str(contract)]
            except PluginCodeError as error:
                raise UnknownContractError(f"contract {str(contract)!r}: {error}") from error
            except (KeyError, TypeError):
                definition = None
        if not isinstance(definition, ContractDefinition):
            raise UnknownContractError(
                f"contract {str(contract)!r}: module {module!r} must hold it in DEFINITIONS as a "
                f"ContractDefinition"
            )
        return definition

    def _offer(self, plugin: Plugin, module: str, contract: str) -> tuple[Implementation, ...]:
        key = (plugin.name, module, contract)
        if plugin.usable and key in self._offers:
            return self._offers[key]
        offered = self._activator.call_for_sequence(
            plugin, module, "torchyard_implementations", Implementation, contract=contract
        )
        for item in offered:
            if item.plugin != plugin.name or item.contract != contract:
                plugin.retire(
                    PluginState.FAILED,
                    ReasonCode.PLUGIN,
                    f"hook torchyard_implementations: expected implementations of {contract} "
                    f"named '{plugin.name}.*', got {item.name!r} of {item.contract}",
                    f"report it to the author of {plugin.source.distribution or plugin.name!r}",
                )
                raise PluginCodeError(plugin.reason)
        self._offers[key] = offered
        return offered

    def _locked(self, path: str, contract: str) -> tuple[tuple[str, str], ...]:
        if not path:
            return ()
        buckets = read_dump(Path(path)).decisions.get(contract, {})
        return tuple((bucket, name) for bucket, name in buckets.items() if name is not None)


@lru_cache(maxsize=1)
def registry() -> Registry:
    """Return this process's registry; made on first use, and safe to ask for again and again."""
    return Registry()


def resolve(contract: str, request: Request, *, use: str | None = None) -> Callable[..., Any]:
    """Return the callable that serves a request, by this process's registry."""
    return registry().resolve(contract, request, use=use)


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
