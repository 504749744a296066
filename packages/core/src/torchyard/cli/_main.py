"""The command line's entry point and its built-in commands."""

from __future__ import annotations

import contextlib
import os
import sys

import click

from torchyard._version import __version__
from torchyard.cli._decisions import decisions
from torchyard.cli._doctor.command import doctor
from torchyard.cli._env import env
from torchyard.cli._explain import explain
from torchyard.cli._features import features
from torchyard.cli._group import YardGroup
from torchyard.cli._optimize import optimize
from torchyard.cli._plugins import plugins


@click.group(cls=YardGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, "-V", "--version", prog_name="torchyard")
def cli() -> None:
    """Say which implementation computes an op on this machine, and why.

    Every command takes --json: stdout then holds one JSON document and nothing else.
    """


for _command in (decisions, doctor, env, explain, features, optimize, plugins):
    cli.add_command(_command)


def main() -> None:
    """Run the command line on this process's arguments, and end the process."""
    try:
        cli(prog_name="torchyard")
    finally:
        _close_answer()


def _close_answer() -> None:
    """Finish the answer: nothing that is written to stdout from here on belongs to it.

    What a plugin prints while the process ends goes to stderr. Where whoever read us has seen
    enough and left, what is still held back goes nowhere: Python flushes stdout once more at exit.
    """
    answer = sys.__stdout__
    if answer is None:
        return
    with contextlib.suppress(OSError, ValueError):
        try:
            answer.flush()
        except BrokenPipeError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), answer.fileno())
        else:
            os.dup2(sys.stderr.fileno(), answer.fileno())
