"""``torchyard release``: the steps of a train, each imported when it runs."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Final

import click

from torchyard_release._cli._command import WORDS

# Name -> (module:attribute, one line).
COMMANDS: Final[dict[str, tuple[str, str]]] = {
    "approve": ("torchyard_release._cli._sign:approve", "Sign a candidate and its evidence."),
    "audit": ("torchyard_release._cli._after:audit", "Compare the index with what was signed."),
    "authenticate": (
        "torchyard_release._cli._sign:authenticate",
        "Verify a release's files by public keys alone.",
    ),
    "bisect": ("torchyard_release._cli._after:bisect", "Find the commit that broke a command."),
    "build": ("torchyard_release._cli._build:build", "Build the candidate, twice."),
    "bump": ("torchyard_release._cli._bump:bump", "Give the tree another version."),
    "check": ("torchyard_release._cli._check:check", "Find what differs from train.toml."),
    "cut": ("torchyard_release._cli._cut:cut", "Make the branch and the tag of a candidate."),
    "history": (
        "torchyard_release._cli._views._history:history",
        "What was run, by whom, how it ended.",
    ),
    "index": ("torchyard_release._cli._after:index", "Serve a package index for a rehearsal."),
    "inspect": ("torchyard_release._cli._inspect:inspect", "Hold the files against train.toml."),
    "key": ("torchyard_release._cli._sign:key", "Make and show signing keys."),
    "notes": ("torchyard_release._cli._notes:notes", "Write release notes and a blog post."),
    "pick": ("torchyard_release._cli._pick:pick", "Bring commits of main onto the branch."),
    "plan": ("torchyard_release._cli._views._plan:plan", "Show the calendar, and what is due."),
    "promote": ("torchyard_release._cli._sign:promote", "Make a candidate the release."),
    "publish": ("torchyard_release._cli._publish:publish", "Upload the release, file by file."),
    "scorecard": (
        "torchyard_release._cli._views._scorecard:scorecard",
        "Show a candidate's checks, and write its page.",
    ),
    "status": ("torchyard_release._cli._views._status:status", "Show the train's state."),
    "verify": ("torchyard_release._cli._verify:verify", "Install a candidate and try it."),
    "wheels": (
        "torchyard_release._cli._wheels:wheels",
        "Build a package's wheels of every platform from this checkout.",
    ),
    "workflows": (
        "torchyard_release._cli._workflows:workflows",
        "Write the workflows of GitHub Actions.",
    ),
}

# Those that every train takes; RELEASE.md has them with what is done in between.
STEPS: Final = (
    *("plan", "check", "cut", "build", "inspect", "verify", "scorecard", "pick", "notes"),
    *("approve", "promote", "publish", "audit", "bump"),
)


class _Lazy(click.Group):
    """List the commands from the table; import a command's module only to run it."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Keep the words for the journal."""
        ctx.meta[WORDS] = tuple(args)
        return super().parse_args(ctx, args)

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names, sorted."""
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import a command, or return None."""
        if cmd_name not in COMMANDS:
            return None
        module, _, attribute = COMMANDS[cmd_name][0].partition(":")
        found = getattr(importlib.import_module(module), attribute)
        assert isinstance(found, click.Command)
        return found

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the table; nothing is imported."""
        with formatter.section("Steps, in their order"):
            formatter.write_dl([(name, COMMANDS[name][1]) for name in STEPS])
        with formatter.section("At any time"):
            formatter.write_dl([(n, COMMANDS[n][1]) for n in sorted(COMMANDS) if n not in STEPS])


@click.group(cls=_Lazy, no_args_is_help=True)
@click.option(
    "--root",
    type=click.Path(file_okay=False, exists=True, path_type=Path),
    default=Path(),
    show_default="this folder",
    help="A folder in the repository.",
)
@click.option(
    "--state",
    type=click.Path(file_okay=False, path_type=Path),
    show_default=".train in the repository",
    help="Where the commands keep what they know.",
)
@click.pass_context
def command(ctx: click.Context, root: Path, state: Path | None) -> None:
    """Cut, prove and publish every package of the repository that train.toml declares.

    Exit status 0: done; 1: it could not be done; 2: the command was not understood; 3: it was
    done, and the answer is no.
    """
    ctx.obj = (root, state)
