"""What ``torchyard doctor`` finds: checks in sections, as data."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from torchyard._contracts.contract import ContractId
from torchyard._environ import setting
from torchyard._errors import TorchyardError
from torchyard._failure import describe
from torchyard._features.levels import EvidenceLevel, levels
from torchyard._platforms.platform import privateuse1_name
from torchyard._plugins.check import Check, CheckStatus
from torchyard._plugins.packages import (
    DEVICES,
    HIP_DEVICES,
    IMPLEMENTED_ELSEWHERE,
    how_to_install,
)
from torchyard._plugins.plugin import Plugin, PluginState
from torchyard._registry.registry import Registry
from torchyard.cli._doctor.settings import check_settings
from torchyard.cli._torch import TorchStatus

# Device types that torch itself brings; a plugin may own one, and none has to.
_TORCH_DEVICES: Final = ("cpu", "cuda", "mps", "xpu")

_OF_STATE: Final = {
    PluginState.DISCOVERED: CheckStatus.PASS,
    PluginState.ACTIVE: CheckStatus.PASS,
    PluginState.BLOCKED: CheckStatus.WARN,
    PluginState.INCOMPATIBLE: CheckStatus.WARN,
    PluginState.UNAVAILABLE: CheckStatus.WARN,
    PluginState.FAILED: CheckStatus.FAIL,
}


@dataclass(frozen=True, slots=True)
class Section:
    """Checks of one subject."""

    title: str
    checks: tuple[Check, ...]


def diagnose(
    registry: Registry,
    torch: TorchStatus,
    built_in_commands: frozenset[str],
    step: Callable[[str], None],
    device: str | None = None,
) -> tuple[Section, ...]:
    """Make every check, or those of one device.

    Args:
        registry: what is installed.
        torch: torch as this process has it.
        built_in_commands: names that no plugin's command may take.
        step: called with the name of what begins.
        device: one of ``device_names``; None: all.
    """
    owners = [plugin for plugin, name in registry.devices() if device in (None, name)]
    plugins = registry.plugins if device is None else owners
    step("devices")
    devices = [one for one in _check_devices(registry, torch) if device in (None, one.name)]
    step("settings")
    settings = tuple(check_settings(registry))
    step("decisions")
    decisions = tuple(_check_decisions(registry, device))
    step("checks of the plugins")
    own = tuple(_own_checks(registry, plugins))
    step("evidence")
    proven = [one for one in _check_evidence(registry) if device in (None, one.name)]
    step("plugins")
    # Last, because every step before may have shown that a plugin is broken.
    found = tuple(_check_plugins(registry, plugins, built_in_commands))
    return (
        Section("torch", tuple(_check_torch(torch, registry))),
        Section("devices", tuple(devices)),
        Section("plugins", found),
        Section("settings", settings),
        Section("decisions", decisions),
        Section("checks of the plugins", own),
        Section("evidence", tuple(proven)),
    )


def device_names(registry: Registry) -> tuple[str, ...]:
    """Return what ``diagnose`` can be asked for: torch's device types and those of plugins."""
    owned = {name for _, name in registry.devices()}
    return tuple(sorted({*_TORCH_DEVICES, *registry.platform.devices, *owned}))


def _check_torch(torch: TorchStatus, registry: Registry) -> Iterator[Check]:
    if torch.problem:
        yield Check(
            "torch",
            CheckStatus.FAIL,
            f"installed, but cannot be imported: {torch.problem}",
            "if a device plugin of torch is at fault, TORCH_DEVICE_BACKEND_AUTOLOAD=0 keeps torch "
            "from loading it",
        )
        return
    if torch.module is None:
        yield Check(
            "torch", CheckStatus.UNVERIFIED, "not installed", "install torch to run components"
        )
        return
    yield Check("torch", CheckStatus.PASS, str(torch.module.__version__))
    found = sorted(registry.platform.devices - {"cpu"})
    text = ", ".join(found) if found else "none; the CPU is used"
    yield Check("accelerator", CheckStatus.PASS, text)


def _check_devices(registry: Registry, torch: TorchStatus) -> Iterator[Check]:
    owned = {device for _, device in registry.devices()}
    for plugin, device in registry.devices():
        status = registry.probe_device_of(plugin, device)
        text = f"{status.text} (plugin {plugin.name})"
        if status.available:
            yield Check(device, CheckStatus.PASS, text)
        else:
            broken = plugin.state is PluginState.FAILED
            outcome = CheckStatus.FAIL if broken else CheckStatus.UNVERIFIED
            yield Check(device, outcome, text, status.hint)
    for device in sorted({*_TORCH_DEVICES, *registry.platform.devices} - owned):
        if torch.module is None:
            text = "no torch to ask"
        elif device in registry.platform.devices:
            text = "torch has it here; no usable plugin owns it, so its results are not checked"
            if device in DEVICES:
                others = HIP_DEVICES if torch.module.version.hip else {}
                package = others.get(device, device)
                yield Check(device, CheckStatus.UNVERIFIED, text, how_to_install(package))
                continue
        else:
            text = "torch finds none here"
        yield Check(device, CheckStatus.UNVERIFIED, text)
    yield _check_slot(registry.plugins)


def _check_evidence(registry: Registry) -> Iterator[Check]:
    """Say how well the features are proven on the devices that are here."""
    for device in sorted(registry.platform.devices):
        rows = [row for row in levels((device,)) if row.device == device]
        counts = Counter(row.level for row in rows)
        text = ", ".join(f"{counts[level]} {level}" for level in EvidenceLevel if counts[level])
        proven = any(level is not EvidenceLevel.DECLARED for level in counts)
        yield Check(
            device,
            CheckStatus.PASS if proven else CheckStatus.UNVERIFIED,
            f"features by evidence: {text}",
            "" if proven else f"`torchyard certify PLUGIN --device {device}` makes evidence",
        )


def _check_slot(plugins: Sequence[Plugin]) -> Check:
    holder, named = privateuse1_name(), setting("TORCHYARD_PRIVATEUSE1")
    able = [
        plugin
        for plugin in plugins
        if plugin.state is not PluginState.BLOCKED
        and plugin.manifest is not None
        and plugin.manifest.claims_privateuse1
    ]
    claimants = [p for p in able if p.manifest and p.manifest.wants_privateuse1(named, holder)]
    names = ", ".join(sorted(plugin.name for plugin in claimants))
    keepers = [plugin.name for plugin in claimants if plugin.usable]
    held = "nothing holds it in this process" if holder is None else f"device {holder!r} holds it"
    if asleep := sorted(plugin.name for plugin in able if plugin not in claimants):
        held += f"; taken on request by {', '.join(asleep)}: TORCHYARD_PRIVATEUSE1={asleep[0]}"
    if not claimants:
        return Check("PrivateUse1 slot", CheckStatus.PASS, f"claimed by no plugin; {held}")
    if len(claimants) == 1:
        outcome = CheckStatus.PASS if keepers else CheckStatus.WARN
        hint = "" if keepers else claimants[0].hint
        return Check("PrivateUse1 slot", outcome, f"claimed by {names}; {held}", hint)
    kept = f"{keepers[0]} keeps it" if keepers else "so that none gets it"
    return Check(
        "PrivateUse1 slot",
        CheckStatus.WARN,
        f"claimed by {names}, {kept}; {held}; torch has one per process",
        "uninstall all but one, or name one in TORCHYARD_PRIVATEUSE1",
    )


def _check_plugins(
    registry: Registry, plugins: Sequence[Plugin], built_in_commands: frozenset[str]
) -> Iterator[Check]:
    from torchyard.cli._commands import find_plugin_commands

    if not registry.plugins:
        yield Check("plugins", CheckStatus.WARN, "none is installed", "pip install torchyard[cpu]")
    for plugin in plugins:
        outcome = _OF_STATE[plugin.state]
        text = str(plugin.state)
        if plugin.code is not None:
            text = f"{plugin.state}: {plugin.code}: {plugin.reason}"
        if plugin.notes and outcome is CheckStatus.PASS:
            outcome = CheckStatus.WARN
        if plugin.notes:
            text = f"{text}; {'; '.join(plugin.notes)}"
        yield Check(plugin.name, outcome, text, plugin.hint)
    for clash in find_plugin_commands(built_in_commands).clashes:
        yield Check(f"command {clash.name}", CheckStatus.WARN, clash.text)


def _check_decisions(registry: Registry, device: str | None) -> Iterator[Check]:
    available = set(registry.platform.devices)
    available |= {name for _, name in registry.devices() if registry.probe_device(name).available}
    if device is not None:
        available &= {device}
    for contract in registry.contracts():
        for name in sorted(available):
            yield _check_decision(registry, contract, name)


def _check_decision(registry: Registry, contract: ContractId, device: str) -> Check:
    name = f"{contract} on {device}"
    try:
        cases = list(registry.definition(contract).cases(device))
        decisions = [registry.decide(contract, request) for request in cases]
    except TorchyardError as error:
        return Check(name, CheckStatus.FAIL, str(error))
    except Exception as error:
        return Check(name, CheckStatus.FAIL, f"the component's cases are broken: {describe(error)}")
    if not decisions:
        return Check(name, CheckStatus.UNVERIFIED, "the component has no cases for this device")
    # Not every contract is for every device: what nobody offers is missing nowhere.
    elsewhere = IMPLEMENTED_ELSEWHERE.get(contract.op, "")
    computed = any(decision.name for decision in decisions)
    # A component alone is a sound installation: what it leaves to another package is absent.
    if elsewhere and not computed and not _is_usable(registry, elsewhere):
        return Check(
            name,
            CheckStatus.UNVERIFIED,
            f"torchyard-{elsewhere}, which implements it, is not in use here",
            how_to_install(elsewhere),
        )
    if not any(decision.trace for decision in decisions):
        return Check(name, CheckStatus.UNVERIFIED, "no plugin implements it for this device")
    counts = Counter(decision.name for decision in decisions)
    text = ", ".join(
        f"{winner or 'nothing'} {count} of {len(decisions)}"
        for winner, count in counts.most_common()
    )
    if not counts[""]:
        return Check(name, CheckStatus.PASS, text)
    unserved = next(decision for decision in decisions if not decision.name)
    return Check(
        name,
        CheckStatus.FAIL,
        f"{text}; no implementation supports {unserved.request}",
        f"`torchyard explain {contract.op} --device {device}` shows every candidate",
    )


def _is_usable(registry: Registry, name: str) -> bool:
    return any(plugin.name == name and plugin.usable for plugin in registry.plugins)


def _own_checks(registry: Registry, plugins: Sequence[Plugin]) -> Iterator[Check]:
    for plugin in plugins:
        for check in registry.checks(plugin):
            yield Check(f"{plugin.name}: {check.name}", check.status, check.text, check.hint)
