"""What commands write: a table for a person, or one JSON document for a program."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from rich.console import Console

F = TypeVar("F", bound=Callable[..., Any])

_WIDTH_WITHOUT_TERMINAL = 120


def json_option(command: F) -> F:
    """Give a command ``--json``."""
    option = click.option(
        "--json", "as_json", is_flag=True, help="Write one JSON document to stdout, nothing else."
    )
    return option(command)


def console() -> Console:
    """Return a console that writes text as it is: a plugin's words are no markup."""
    from rich.console import Console

    width = None
    if not sys.stdout.isatty():
        width = shutil.get_terminal_size((_WIDTH_WITHOUT_TERMINAL, 24)).columns
    return Console(markup=False, highlight=False, emoji=False, width=width)


def write_json(data: object) -> None:
    """Write the one JSON document."""
    click.echo(json.dumps(data, indent=2, sort_keys=True, ensure_ascii=False))


@contextlib.contextmanager
def answer_only(as_json: bool) -> Iterator[None]:
    """Send to stderr whatever else is written to stdout in the block, by whatever means.

    Native code and subprocesses of a plugin write to the file descriptor, past ``sys.stdout``.
    """
    if not as_json:
        yield
        return
    with contextlib.redirect_stdout(sys.stderr), _descriptor_to_stderr():
        yield


@contextlib.contextmanager
def _descriptor_to_stderr() -> Iterator[None]:
    try:
        saved = os.dup(1)
    except OSError:
        yield
        return
    try:
        os.dup2(2, 1)
        yield
    finally:
        _flush_native()
        os.dup2(saved, 1)
        os.close(saved)


def _flush_native() -> None:
    """Flush what C code printed and libc still holds, before stdout is stdout again."""
    if os.name != "posix":
        return
    import ctypes

    ctypes.CDLL(None).fflush(None)
