"""The command group: built-in commands, then those that plugins declare."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import click

from torchyard._errors import TorchyardError
from torchyard.cli._commands import PluginCommand, find_plugin_commands


class YardGroup(click.Group):
    """List plugins' commands from their manifests; import a plugin only to run its command."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the built-in names, then the plugins'."""
        built_in = sorted(self.commands)
        try:
            found = find_plugin_commands(frozenset(self.commands)).offered
        except TorchyardError:
            return built_in
        return [*built_in, *sorted(found)]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return a command without importing the plugin that it belongs to."""
        built_in = super().get_command(ctx, cmd_name)
        if built_in is not None:
            return built_in
        return find_plugin_commands(frozenset(self.commands)).command(cmd_name)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command that is to run; here a plugin's command is imported."""
        name, command, rest = super().resolve_command(ctx, args)
        if isinstance(command, PluginCommand):
            command = command.load()
        return name, command, rest

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Say why plugins' commands are missing from the list, where they are."""
        super().format_epilog(ctx, formatter)
        try:
            find_plugin_commands(frozenset(self.commands))
        except TorchyardError as error:
            formatter.write_paragraph()
            formatter.write_text(f"Commands of plugins are not listed: {error}")

    def main(self, args: Sequence[str] | None = None, *rest: Any, **extra: Any) -> Any:
        """Run; an error that torchyard raises on purpose ends as one line and exit status 2."""
        try:
            return super().main(args, *rest, **extra)
        except TorchyardError as error:
            if not extra.get("standalone_mode", True):
                raise
            click.echo(f"Error: {error}", err=True)
            sys.exit(2)
