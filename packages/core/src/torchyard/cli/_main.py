"""The command line's entry point and its built-in commands."""

from __future__ import annotations

import contextlib
import os
import sys

import click

from torchyard._version import __version__
from torchyard.cli._decisions import decisions
from torchyard.cli._doctor import doctor
from torchyard.cli._env import env
from torchyard.cli._explain import explain
from torchyard.cli._features import features
from torchyard.cli._group import YardGroup
from torchyard.cli._plugins import plugins


@click.group(cls=YardGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, "-V", "--version", prog_name="torchyard")
def cli() -> None:
    """Say what serves an op on this machine, and why.

    Every command takes --json: stdout then holds one JSON document and nothing else.
    """


for _command in (decisions, doctor, env, explain, features, plugins):
    cli.add_command(_command)


def main() -> None:
    """Run the command line on this process's arguments, and end the process."""
    try:
        try:
            cli(prog_name="torchyard")
        finally:
            sys.stdout.flush()
            # What a plugin prints while the process ends is no part of the answer.
            with contextlib.suppress(OSError, ValueError):
                os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    except BrokenPipeError:
        # Whoever read us has seen enough. Python flushes stdout once more at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
