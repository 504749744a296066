"""What all commands share: the workspace, ``--json``, exit codes, errors with a remedy."""

from __future__ import annotations

import contextlib
import errno
import functools
import json
import shutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Concatenate, Final, ParamSpec

import click

from torchyard_release._errors import ReleaseError
from torchyard_release._records._journal import Journal
from torchyard_release._repository._workspace import Workspace

if TYPE_CHECKING:
    from rich.console import Console

P = ParamSpec("P")

DONE: Final = 0
FAILED: Final = 1
REFUSED: Final = 3
# Under which the group keeps its words.
WORDS: Final = "torchyard_release.words"
_WIDTH_WITHOUT_TERMINAL: Final = 120


@dataclass(frozen=True, slots=True)
class Answer:
    """What a command has to say.

    Attributes:
        data: for a program: what ``--json`` writes.
        show: writes it for a person.
        code: the exit status: DONE, or REFUSED where the answer is no.
    """

    data: object
    show: Callable[[Console], None]
    code: int = DONE


def release_command(
    function: Callable[Concatenate[Workspace, P], Answer],
) -> Callable[..., None]:
    """Make a function of the workspace a command's body: it gets ``--json`` and returns an Answer.

    Put it directly above the function, and ``@click.command()`` and options above it.
    """

    @click.option("--json", "as_json", is_flag=True, help="Write one JSON document to stdout.")
    @click.pass_context
    @functools.wraps(function)
    def run(ctx: click.Context, /, *args: Any, as_json: bool, **options: Any) -> None:
        with told(as_json):
            workspace = Workspace.find(*ctx.obj)
            answer = function(workspace, *args, **options)
        if as_json:
            click.echo(json.dumps(answer.data, indent=2, sort_keys=True, ensure_ascii=False))
        else:
            answer.show(console())
        ctx.exit(answer.code)

    return run


@contextlib.contextmanager
def told(as_json: bool) -> Iterator[None]:
    """Turn an error into what is wrong and what to do, and exit status FAILED."""
    try:
        yield
    except ReleaseError as error:
        _write_error(error, as_json)
        click.get_current_context().exit(FAILED)
    except OSError as error:
        _write_error(_described(error), as_json)
        click.get_current_context().exit(FAILED)


@contextlib.contextmanager
def operation(workspace: Workspace) -> Iterator[Journal]:
    """Hold the train while the running command works, and record its words and its end."""
    with workspace.operation(argv_of(click.get_current_context())) as journal:
        yield journal


def group_of() -> click.Group:
    """Return the group ``torchyard release`` that the running command is of."""
    parent = click.get_current_context().parent
    assert parent is not None
    assert isinstance(parent.command, click.Group)
    return parent.command


def argv_of(ctx: click.Context) -> tuple[str, ...]:
    """Return the words after ``torchyard release`` of the running command."""
    words: tuple[str, ...] = ctx.meta[WORDS]
    return words


def console(*, stderr: bool = False) -> Console:
    """Return a console that writes text as it is: nothing in it is markup."""
    from rich.console import Console

    width = None
    if not (sys.stderr if stderr else sys.stdout).isatty():
        width = shutil.get_terminal_size((_WIDTH_WITHOUT_TERMINAL, 24)).columns
    return Console(stderr=stderr, markup=False, highlight=False, emoji=False, width=width)


def _write_error(error: ReleaseError, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps({"error": error.text, "do": error.remedy}, indent=2))
        return
    click.echo(f"error: {error.text}", err=True)
    click.echo(f"do: {error.remedy}", err=True)


def _described(error: OSError) -> ReleaseError:
    """Say what the system refused, and what to do about it."""
    where = f"{Path(error.filename)}: " if isinstance(error.filename, str) else ""
    if error.errno in {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}:
        return ReleaseError(
            f"{where}the disk is full",
            "free some space, then run the same command again: it goes on where it stopped",
        )
    return ReleaseError(
        f"{where}{error.strerror or error}",
        "see to it, then run the same command again: it goes on where it stopped",
    )
