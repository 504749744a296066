"""A plugin's manifest: static data, read without importing the plugin."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from torchyard._contracts.contract import ContractId, parse_contract
from torchyard._errors import ManifestError
from torchyard._tables import NAME, Table

SCHEMA: Final = 1
PRIVATEUSE1: Final = "PrivateUse1"

_MODULE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*")
_IMPLEMENTATION: Final = re.compile(r"[a-z][a-z0-9_-]*\.[A-Za-z0-9_.-]+")
_ARCHITECTURE: Final = re.compile(r"[a-z0-9][a-z0-9_.-]*")
_ANY_DEVICE: Final = "*"


@dataclass(frozen=True, slots=True)
class Requires:
    """What must be there before the plugin is used.

    Attributes:
        torchyard: specifier that this core's version must satisfy.
        torch: specifier that the installed torch must satisfy; empty where any will do, or none.
        modules: top-level modules that must be importable.
    """

    torchyard: str
    torch: str
    modules: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class DeviceEntry:
    """A torch device type that the plugin owns.

    Attributes:
        name: of the device type.
        module: holds its probe; empty where it has none.
        slot: of torch that it takes; empty for none.
        on_request: whether it takes the slot only where TORCHYARD_PRIVATEUSE1 names its plugin.
        simulated: whether another device computes for it, so that right results on it are no proof
            for hardware.
        architectures: what those that are the plugin's begin with, such as ``gfx``; empty for all.
    """

    name: str
    module: str
    slot: str
    on_request: bool = False
    simulated: bool = False
    architectures: str = ""


@dataclass(frozen=True, slots=True)
class DefinesEntry:
    """A contract that the plugin's component defines.

    Attributes:
        contract: its name.
        minor: the newest minor that the component defines; it supports every older one.
        module: holds ``DEFINITIONS``.
        deprecated: what the authors of its implementations should know and do; empty where the
            contract is there to stay.
    """

    contract: ContractId
    minor: int
    module: str
    deprecated: str = ""


@dataclass(frozen=True, slots=True)
class ImplementsEntry:
    """A module that holds implementations of a contract for some devices.

    Attributes:
        contract: the contract's name.
        minor: the least minor that the component must define.
        module: holds the hook.
        devices: device types, or ``*``.
    """

    contract: ContractId
    minor: int
    module: str
    devices: tuple[str, ...]

    def covers(self, device: str) -> bool:
        """Return whether this module is worth importing for a device type."""
        return _ANY_DEVICE in self.devices or device in self.devices


@dataclass(frozen=True, slots=True)
class CommandEntry:
    """A subcommand of the ``torchyard`` command line."""

    name: str
    target: str
    help: str


@dataclass(frozen=True, slots=True)
class MeasureEntry:
    """The modules that ``torchyard doctor --measure`` asks; empty where there is none.

    Attributes:
        limits: measures what the plugin's devices can do.
        workloads: names work of the component.
    """

    limits: str = ""
    workloads: str = ""


@dataclass(frozen=True, slots=True)
class Order:
    """The order in which implementations of a contract are tried on a device type.

    ``architecture`` is the accelerator's that it is for; empty: any without a list of its own.
    """

    contract: ContractId
    device: str
    names: tuple[str, ...]
    architecture: str = ""


@dataclass(frozen=True, slots=True)
class Manifest:
    """Everything that is known of a plugin before any of its code runs."""

    name: str
    summary: str
    requires: Requires
    devices: tuple[DeviceEntry, ...] = ()
    defines: tuple[DefinesEntry, ...] = ()
    implements: tuple[ImplementsEntry, ...] = ()
    commands: tuple[CommandEntry, ...] = ()
    orders: tuple[Order, ...] = ()
    doctor: str = ""
    measure: MeasureEntry = MeasureEntry()
    optimize: str = ""

    @property
    def claims_privateuse1(self) -> bool:
        """Whether a device of this plugin lies on torch's single PrivateUse1 slot."""
        return any(device.slot == PRIVATEUSE1 for device in self.devices)

    def wants_privateuse1(self, named: str, holder: str | None) -> bool:
        """Return whether the plugin takes part where the slot is given away.

        Args:
            named: the plugin that TORCHYARD_PRIVATEUSE1 names; empty for none.
            holder: the device that has the slot in this process; None where none does.
        """
        return any(
            not device.on_request or self.name == named or device.name == holder
            for device in self.devices
            if device.slot == PRIVATEUSE1
        )

    def declares(self, device: str, architecture: str = "") -> bool:
        """Return whether the plugin owns a device type, where known of an architecture."""
        prefixes = [entry.architectures for entry in self.devices if entry.name == device]
        return any(not architecture or architecture.startswith(prefix) for prefix in prefixes)

    def defines_contract(self, contract: ContractId) -> bool:
        """Return whether the plugin is the contract's component."""
        return any(entry.contract == contract for entry in self.defines)


def parse_manifest(text: str, *, expected_name: str) -> Manifest:
    """Read a manifest.

    Args:
        text: the TOML file's content.
        expected_name: the name of the entry point that led to it.

    Raises:
        ManifestError: names the key, what was expected and what was found.
    """
    import tomllib

    try:
        data = tomllib.loads(text)
    # Besides its own error, the parser passes on what int() says of an endless number and the
    # interpreter of endless nesting.
    except (ValueError, RecursionError) as error:
        raise ManifestError(f"manifest: expected TOML, got: {error}") from error
    table = _ManifestTable(data, "", ManifestError)
    schema = table.take("schema", int)
    if schema != SCHEMA:
        raise ManifestError(
            f"schema: expected {SCHEMA}, got {schema}; install a torchyard that reads schema "
            f"{schema}, or rewrite the manifest"
        )
    name = table.take("name", str)
    if name != expected_name or not NAME.fullmatch(name):
        raise ManifestError(
            f"name: expected the entry point's name {expected_name!r} (lower-case letters, digits, "
            f"'-' and '_'), got {name!r}"
        )
    requires = table.table("requires")
    manifest = Manifest(
        name=name,
        summary=table.take("summary", str),
        requires=Requires(
            torchyard=_specifier("requires.torchyard", requires.take("torchyard", str)),
            torch=_specifier("requires.torch", requires.take("torch", str, ""), optional=True),
            modules=_required_modules(requires),
        ),
        devices=tuple(_device(entry) for entry in table.entries("devices")),
        defines=tuple(_defines(entry) for entry in table.entries("defines")),
        implements=tuple(_implements(entry) for entry in table.entries("implements")),
        commands=tuple(_command(entry) for entry in table.entries("commands")),
        orders=tuple(_orders(table.table("order", {}))),
        doctor=_hooks(table.table("doctor", {})),
        measure=_measure(table.table("measure", {})),
        optimize=_hooks(table.table("optimize", {})),
    )
    requires.finish()
    table.finish()
    _check_consistency(manifest)
    return manifest


def _check_consistency(manifest: Manifest) -> None:
    names = [device.name for device in manifest.devices]
    _once("devices", "name", names)
    _once("defines", "contract", [str(entry.contract) for entry in manifest.defines])
    implements = [f"{entry.contract} in {entry.module}" for entry in manifest.implements]
    _once("implements", "contract and module", implements)
    _once("commands", "name", [command.name for command in manifest.commands])
    claims = [device.name for device in manifest.devices if device.slot == PRIVATEUSE1]
    if len(claims) > 1:
        raise ManifestError(
            f"devices: torch has one PrivateUse1 slot per process; expected at most one device "
            f"with slot = {PRIVATEUSE1!r}, got {claims}"
        )
    defined = {entry.contract for entry in manifest.defines}
    for order in manifest.orders:
        if order.device not in names and order.contract not in defined:
            raise ManifestError(
                f"order.{str(order.contract)!r}.{order.device}: expected a device that this "
                f"manifest declares or a contract that it defines; an implementation on another's "
                f"device says before/after instead"
            )


def _once(path: str, what: str, values: Sequence[str]) -> None:
    repeated = sorted({value for value in values if values.count(value) > 1})
    if repeated:
        raise ManifestError(f"{path}: expected each {what} once, got {repeated} more than once")


def _required_modules(requires: _ManifestTable) -> tuple[str, ...]:
    names = requires.names("modules", ())
    for name in names:
        # Looking for a submodule would import its parent.
        if not _MODULE.fullmatch(name) or "." in name:
            raise ManifestError(f"requires.modules: expected top-level modules, got {name!r}")
    return names


def _device(entry: _ManifestTable) -> DeviceEntry:
    slot = entry.take("slot", str, "")
    if slot not in {"", PRIVATEUSE1}:
        raise ManifestError(f"{entry.path}.slot: expected {PRIVATEUSE1!r} or nothing, got {slot!r}")
    on_request = entry.take("on_request", bool, False)
    if on_request and not slot:
        raise ManifestError(
            f"{entry.path}.on_request: expected it beside slot = {PRIVATEUSE1!r}, got no slot"
        )
    device = DeviceEntry(
        entry.name("name"),
        entry.module("module", ""),
        slot,
        on_request,
        entry.take("simulated", bool, False),
        entry.take("architectures", str, ""),
    )
    entry.finish()
    return device


def _defines(entry: _ManifestTable) -> DefinesEntry:
    contract, minor = entry.contract()
    defines = DefinesEntry(
        contract, minor, entry.module("module"), " ".join(entry.take("deprecated", str, "").split())
    )
    entry.finish()
    return defines


def _implements(entry: _ManifestTable) -> ImplementsEntry:
    devices = entry.names("devices")
    if not devices or not all(map(_is_device, devices)):
        raise ManifestError(
            f"{entry.path}.devices: expected at least one device type or '*', got {list(devices)}"
        )
    contract, minor = entry.contract()
    implements = ImplementsEntry(contract, minor, entry.module("module"), devices)
    entry.finish()
    return implements


def _command(entry: _ManifestTable) -> CommandEntry:
    target = entry.take("target", str)
    module, colon, attribute = target.partition(":")
    if not (colon and _MODULE.fullmatch(module) and attribute.isidentifier()):
        raise ManifestError(f"{entry.path}.target: expected 'module:attribute', got {target!r}")
    command = CommandEntry(entry.name("name"), target, entry.take("help", str))
    entry.finish()
    return command


def _orders(table: _ManifestTable) -> list[Order]:
    orders = []
    for contract, devices in table.data.items():
        path = f"order.{contract!r}"
        if not isinstance(devices, dict):
            raise ManifestError(f"{path}: expected a table of device types, got {devices!r}")
        per_device = _ManifestTable(devices, path, ManifestError)
        for key in devices:
            device, colon, architecture = key.partition(":")
            fits = NAME.fullmatch(device) and _ARCHITECTURE.fullmatch(architecture)
            if not (fits if colon else _is_device(device)):
                raise ManifestError(
                    f"{path}: expected device types, '*' or 'device:architecture', got {key!r}"
                )
            names = per_device.names(key)
            _once(f"{path}.{key}", "implementation", names)
            if not all(map(_IMPLEMENTATION.fullmatch, names)):
                raise ManifestError(
                    f"{path}.{key}: expected '<plugin>.<implementation>' names, got {list(names)}"
                )
            orders.append(Order(_ordered(path, contract), device, names, architecture))
    return orders


def _is_device(text: str) -> bool:
    return text == _ANY_DEVICE or NAME.fullmatch(text) is not None


def _hooks(table: _ManifestTable) -> str:
    module = table.module("module", "")
    table.finish()
    return module


def _measure(table: _ManifestTable) -> MeasureEntry:
    measure = MeasureEntry(table.module("limits", ""), table.module("workloads", ""))
    table.finish()
    return measure


def _ordered(path: str, contract: str) -> ContractId:
    try:
        return ContractId.parse(contract)
    except ValueError as error:
        raise ManifestError(f"{path}: {error}") from error


def _specifier(path: str, text: str, *, optional: bool = False) -> str:
    if optional and not text:
        return text
    if not text.strip():
        raise ManifestError(f"{path}: expected a version specifier such as '>=0.1', got {text!r}")
    from packaging.specifiers import InvalidSpecifier, SpecifierSet

    try:
        SpecifierSet(text)
    except InvalidSpecifier as error:
        raise ManifestError(
            f"{path}: expected a version specifier such as '>=2.11', got {text!r}"
        ) from error
    return text


class _ManifestTable(Table):
    def module(self, key: str, default: str | None = None) -> str:
        """Return a module's dotted name; without a default the key must be there."""
        value = str(self.take(key, str) if default is None else self.take(key, str, default))
        if value and not _MODULE.fullmatch(value):
            raise ManifestError(f"{self.at(key)}: expected a module's name, got {value!r}")
        return value

    def contract(self) -> tuple[ContractId, int]:
        """Return the contract and the minor of the key ``contract``."""
        try:
            return parse_contract(self.take("contract", str))
        except ValueError as error:
            raise ManifestError(f"{self.at('contract')}: {error}") from error
