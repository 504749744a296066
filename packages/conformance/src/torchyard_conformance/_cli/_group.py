"""``torchyard certify``: a group whose first word may be a plugin's name."""

from __future__ import annotations

from typing import Final

import click

from torchyard_conformance._cli._certify import certify
from torchyard_conformance._cli._laws import laws
from torchyard_conformance._cli._torch_tests import torch_tests
from torchyard_conformance._cli._verify import verify

_PLUGIN: Final = "plugin"


class _PluginFirst(click.Group):
    """Take a first word that is no subcommand as the name of a plugin to certify."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Put the hidden subcommand in front of a plugin's name or its options."""
        if args and args[0] not in {*self.commands, "--help", "-h"}:
            args = [_PLUGIN, *args]
        return super().parse_args(ctx, args)

    def format_usage(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Show the form that is used."""
        formatter.write_usage(ctx.command_path, "PLUGIN [OPTIONS] | COMMAND [ARGS]...")

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the options of the plugin form, which is the one that is used."""
        with formatter.section("Options"):
            formatter.write_dl(
                [
                    record
                    for parameter in certify.get_params(ctx)
                    if (record := parameter.get_help_record(ctx)) is not None
                ]
            )
        self.format_commands(ctx, formatter)


@click.group(cls=_PluginFirst, no_args_is_help=True)
def command() -> None:
    """Certify a plugin: try every law of a profile, and say what prevents a certificate.

    Exit status 0: certified; 1: not; 2: the command was not understood.
    """


command.add_command(certify, _PLUGIN)
command.add_command(laws)
command.add_command(torch_tests)
command.add_command(verify)
