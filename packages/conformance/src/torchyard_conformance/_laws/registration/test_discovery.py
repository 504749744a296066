"""Installing a plugin."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from torchyard import PluginSource, PluginState, Registry, registry
from torchyard_conformance import Subject, law, not_supported, unverified, violated
from torchyard_conformance._laws.registration._observed import (
    alone,
    own_modules,
    switched_off,
)

# What torchyard's command line has by itself.
_BUILT_IN: Final = frozenset(
    {"decisions", "doctor", "env", "explain", "features", "optimize", "plugins"}
)
_HELP: Final = """
import sys
from torchyard.cli import main
sys.argv = ["torchyard", {command!r}, "--help"]
main()
"""


@law("registration.discovery-imports-nothing", profiles=("core", "smoke"))
def test_discovery_imports_nothing(
    subject: Subject, record: Callable[[str, float | str], None]
) -> None:
    """Being installed, it costs no process anything: neither it nor what it requires is imported.

    A fresh interpreter starts, and the registry reads every manifest. Neither may import a module
    of the plugin's distribution, torch, or a module of what the distribution requires.

    Why: whoever installs ten plugins and uses one pays for one; a runtime that is loaded at the
    start of every interpreter slows down each command of the machine, and breaks it where it fails.

    Fix: import nothing from a `.pth` file, `sitecustomize` or an import hook. The manifest is
    data; modules are named in it and imported when they are needed.
    """
    observation = alone(subject)
    own = own_modules(subject)
    discovery = observation.step("discovery")
    record("discovery_ms", discovery["seconds"] * 1e3)
    for when, names in (
        ("when an interpreter starts", observation.seen["start"]),
        ("when the registry reads the manifests", discovery["imported"]),
    ):
        found = sorted({name for name in names if name.partition(".")[0] in own})
        if found:
            violated(f"expected nothing of it to be imported {when}, got {', '.join(found[:8])}")


@law("registration.name-clash", profiles=("core", "smoke"))
def test_nothing_clashes(subject: Subject) -> None:
    """What it calls its own is claimed by nobody else here, and is no built-in name.

    Its name, its devices, the contracts that it defines, torch's PrivateUse1 slot where it claims
    it, and its commands. Then another distribution is announced under its name: where its own
    distribution is called `torchyard-<name>` it keeps the name, otherwise neither has it.

    Why: nobody takes over a name by being installed, so of two claimants at most one works.

    Fix: the reason names the other claimant. Rename what is yours, or certify in an environment
    without the other; call the distribution `torchyard-<name>`.
    """
    plugin = subject.plugin
    if plugin.state is PluginState.INCOMPATIBLE and plugin.code in {"E_PLUGIN", "E_DEVICE"}:
        violated(plugin.reason)
    if plugin.state is PluginState.UNAVAILABLE and plugin.code == "E_SLOT":
        violated(plugin.reason)
    for command in subject.manifest.commands:
        if command.name in _BUILT_IN:
            violated(f"expected a command of another name, {command.name!r} is torchyard's own")
        others = [
            owner.name
            for owner, entry in registry().commands()
            if entry.name == command.name and owner.name != subject.name
        ]
        if others:
            violated(f"command {command.name!r} is also offered by: {', '.join(others)}")
    _hold_against_rival(subject)


def _hold_against_rival(subject: Subject) -> None:
    source = subject.plugin.source
    rival = PluginSource(source.name, source.value, f"rival-of-{source.distribution}", "1")
    sources = [item.source for item in registry().plugins]
    plugins = Registry([*sources, rival], environ={}).plugins
    claimants = {item.source.distribution: item for item in plugins if item.name == source.name}
    kept = [name for name, item in claimants.items() if item.usable]
    named = source.distribution.lower().replace("_", "-") == f"torchyard-{source.name}"
    if rival.distribution in kept or (kept and not named):
        violated(f"expected {source.distribution!r} or nobody to keep the name, got {kept}")
    if named and subject.plugin.usable and kept != [source.distribution]:
        violated(f"expected {source.distribution!r} to keep its name, got {kept}")


@law("registration.switched-off", profiles=("core", "smoke"))
def test_switched_off_it_stays_out(subject: Subject) -> None:
    """Switched off, nothing of it is imported, and every other plugin keeps its state.

    `TORCHYARD_PLUGINS=-<name>`, and everything that it offers is asked for nevertheless.

    Why: the switch is what helps against code that cannot be contained, a crash or an endless loop
    at import; a plugin that runs in spite of it cannot be switched off at all.

    Fix: leave it to the registry to import your modules.
    """
    observation = switched_off(subject)
    state = observation.step("activation").get("state")
    if state != "blocked":
        violated(f"expected it to be blocked, it is {state}: {observation.step('activation')}")
    own = own_modules(subject)
    names = {name for name in observation.seen["imported"] if name.partition(".")[0] in own}
    if names:
        violated(f"expected nothing of it to be imported, got {', '.join(sorted(names)[:8])}")
    for other in registry().plugins:
        now = observation.seen["plugins"][other.name]
        if other.name != subject.name and other.usable and now not in {"discovered", "active"}:
            violated(f"expected plugin {other.name} to work without it, it is {now}")


@law("registration.commands", profiles=("core",))
def test_its_commands_explain_themselves(subject: Subject) -> None:
    """Each of its commands can be loaded and prints its help.

    Why: a command that fails at `--help` fails for whoever has the least idea why.

    Fix: the target of a command is a click command; the output shows what went wrong.
    """
    if not subject.manifest.commands:
        not_supported("it adds no command")
    if not subject.plugin.usable:
        unverified(f"the plugin is {subject.plugin.state}: {subject.plugin.reason}")
    for command in subject.manifest.commands:
        process = subject.fresh(_HELP.format(command=command.name))
        if process.returncode != 0 or "Usage:" not in process.stdout:
            violated(
                f"expected `torchyard {command.name} --help` to explain it, got status "
                f"{process.returncode}: {process.stderr[-500:]}"
            )
