"""Subcommands that plugins declare in their manifests."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import click

from torchyard._errors import TorchyardError
from torchyard._failure import show
from torchyard._plugins.activation import PluginCodeError
from torchyard._plugins.manifest import CommandEntry
from torchyard._plugins.packages import COMMANDS, how_to_install
from torchyard._plugins.plugin import Plugin
from torchyard._registry.registry import registry


@dataclass(frozen=True, slots=True)
class CommandClash:
    """A command's name that a plugin may not have, and why."""

    name: str
    plugins: tuple[str, ...]
    text: str


@dataclass(frozen=True, slots=True)
class PluginCommands:
    """What plugins add to the command line.

    Attributes:
        offered: the commands by name.
        clashes: names that nobody, or only the built-in command, keeps.
        unusable: commands of plugins that are out of use, by name.
    """

    offered: Mapping[str, tuple[Plugin, CommandEntry]]
    clashes: tuple[CommandClash, ...]
    unusable: Mapping[str, Plugin]

    def command(self, name: str) -> click.Command | None:
        """Return a command that can be listed and, by ``load``, run; None for an unknown name."""
        if name in self.offered:
            return PluginCommand(*self.offered[name])
        for clash in self.clashes:
            if clash.name == name:
                raise TorchyardError(clash.text)
        if name in self.unusable:
            plugin = self.unusable[name]
            raise TorchyardError(
                f"command {name!r} belongs to plugin {plugin.name!r}, which is {plugin.state}: "
                f"{plugin.reason}; {plugin.hint}"
            )
        if name in COMMANDS:
            package = COMMANDS[name]
            raise TorchyardError(
                f"command {name!r} is torchyard-{package}'s, which is not installed; "
                f"{how_to_install(package)}"
            )
        return None


class PluginCommand(click.Command):
    """A plugin's command as its manifest describes it; nothing of the plugin is imported."""

    def __init__(self, plugin: Plugin, entry: CommandEntry) -> None:
        super().__init__(entry.name, short_help=f"{entry.help} [{plugin.name}]")
        self._plugin = plugin
        self._entry = entry

    def load(self) -> click.Command:
        """Import and return the real command; TorchyardError says why it cannot be had."""
        where = f"command {self._entry.name!r} of plugin {self._plugin.name!r}"
        try:
            command: object = registry().load_command(self._plugin, self._entry)
        except PluginCodeError as error:
            raise TorchyardError(
                f"{where} cannot be loaded: {error}; {self._plugin.hint} "
                f"(`torchyard plugins -v --activate` shows the traceback)"
            ) from error
        if not isinstance(command, click.Command):
            raise TorchyardError(
                f"{where} cannot be loaded: {self._entry.target}: expected a click command, got "
                f"{show(command)}; report it to the author of the plugin"
            )
        return _blamed(command, where)


def find_plugin_commands(built_in: frozenset[str]) -> PluginCommands:
    """Read what the manifests declare; a built-in name stays built in, a shared one is nobody's."""
    claims: dict[str, list[tuple[Plugin, CommandEntry]]] = {}
    for plugin, entry in registry().commands():
        claims.setdefault(entry.name, []).append((plugin, entry))
    offered = {}
    clashes = []
    for name, claimants in sorted(claims.items()):
        plugins = tuple(plugin.name for plugin, _ in claimants)
        if name in built_in:
            text = (
                f"command {name!r} of plugin {', '.join(plugins)} is not offered: torchyard has a "
                f"command of that name, which stays"
            )
            clashes.append(CommandClash(name, plugins, text))
        elif len(claimants) > 1:
            text = (
                f"command {name!r} is offered by several plugins, so that none keeps it: "
                f"{', '.join(plugins)}; switch all but one off: TORCHYARD_PLUGINS=-{plugins[0]}"
            )
            clashes.append(CommandClash(name, plugins, text))
        else:
            offered[name] = claimants[0]
    unusable = {
        entry.name: plugin
        for plugin in registry().plugins
        if not plugin.usable and plugin.manifest is not None
        for entry in plugin.manifest.commands
    }
    return PluginCommands(offered, tuple(clashes), unusable)


def _blamed(command: click.Command, where: str) -> click.Command:
    """Have an exception of the running command say whose it is."""
    invoke = command.invoke

    def invoke_and_blame(ctx: click.Context) -> Any:
        try:
            return invoke(ctx)
        except (click.exceptions.Exit, click.Abort, click.ClickException, TorchyardError):
            raise
        except Exception as error:
            error.add_note(f"raised by {where}")
            raise

    command.invoke = invoke_and_blame  # type: ignore[method-assign]
    return command
