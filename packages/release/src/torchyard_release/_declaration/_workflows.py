"""Where the train's jobs run on GitHub Actions, as train.toml declares it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Final

from torchyard_release._declaration._platform import platform_of
from torchyard_release._declaration._table import Table

__all__ = ["Action", "Registry", "Relay", "Site", "Workflows", "parse_workflows"]

# The actions that the generated jobs use.
_ACTIONS: Final = (
    "actions/attest-build-provenance",
    "actions/checkout",
    "actions/download-artifact",
    "actions/setup-python",
    "actions/upload-artifact",
    "pypa/gh-action-pypi-publish",
)
_PIN: Final = re.compile(r"([0-9a-f]{40}) (v[\w.]+)")
_BRANCH: Final = re.compile(r"\w[\w./-]*")
# GitHub's word for machines of the repository's owner, and the labels that they have by themselves.
_OWN: Final = "self-hosted"
_GIVEN: Final = frozenset({_OWN, "linux", "macos", "windows", "x64", "arm", "arm64"})


@dataclass(frozen=True, slots=True)
class Action:
    """An action of somebody else's, by the commit that was read.

    Attributes:
        name: owner and repository.
        commit: in hexadecimal; a tag may be moved.
        version: what the commit is called.
    """

    name: str
    commit: str
    version: str


@dataclass(frozen=True, slots=True)
class Registry:
    """A package index that trusts the workflow, without a token.

    Attributes:
        name: also of GitHub's environment, whose reviewers let a release through.
        upload: address to upload to.
        simple: address to install from.
    """

    name: str
    upload: str
    simple: str


@dataclass(frozen=True, slots=True)
class Relay:
    """What is done with a commit of PyTorch, whose sources are in the folder ``pytorch``.

    Attributes:
        minutes: after which the job is stopped.
        environment: variables of its commands.
        run: commands that build it and try the packages on it.
    """

    minutes: int
    environment: tuple[tuple[str, str], ...]
    run: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Site:
    """Where the documentation is published.

    Attributes:
        build: a command that puts this version beside those of the folder ``site``.
        branch: of the repository, from which GitHub serves that folder; nothing else lies in it.
    """

    build: str
    branch: str


@dataclass(frozen=True, slots=True)
class Workflows:
    """How the train's commands are run by GitHub Actions.

    Attributes:
        folder: of the generated files, relative to the root.
        minutes: after which a job is stopped.
        prepare: commands that bring the tools of a job, in order.
        check: commands that every change must pass, besides the gates.
        evidence: a command that leaves a certificate of a target in the folder ``evidence``, in
            which ``{cell}`` is the target; empty for none.
        weekday: on which targets of machines of one's own are tried: 0 is Sunday.
        runners: target -> labels of the machines that have it.
        platforms: platform of a wheel, such as ``win_amd64`` -> labels of machines of that kind, on
            which a release's wheels are installed before they are uploaded.
        installed: commands that install the files of the folder ``dist`` there and try them.
        relay: what is done with a commit of PyTorch; None for nothing.
        site: where the documentation is published; None for nowhere.
        actions: in the order of their names.
        registries: in the order in which a release goes to them, the last for good.
    """

    folder: PurePosixPath
    minutes: int
    prepare: tuple[str, ...]
    check: tuple[str, ...]
    evidence: str
    weekday: int
    runners: tuple[tuple[str, tuple[str, ...]], ...]
    platforms: tuple[tuple[str, tuple[str, ...]], ...]
    installed: tuple[str, ...]
    relay: Relay | None
    site: Site | None
    actions: tuple[Action, ...]
    registries: tuple[Registry, ...]

    def labels(self, target: str) -> tuple[str, ...]:
        """Return the labels of the machines of a target; of the first one where it has none."""
        return dict(self.runners).get(target, self.runners[0][1])

    def is_own(self, target: str) -> bool:
        """Whether a target's machines are the owner's, which strangers' changes must not reach."""
        return _OWN in dict(self.runners).get(target, ())

    @property
    def own_labels(self) -> tuple[str, ...]:
        """The labels that the owner gave machines, in the order of their names."""
        own = {label for target, labels in self.runners if self.is_own(target) for label in labels}
        return tuple(sorted(label for label in own if label.lower() not in _GIVEN))


def parse_workflows(top: Table, targets: tuple[str, ...]) -> Workflows | None:
    """Return ``[workflows]``; None where there is none.

    Args:
        top: the whole file.
        targets: names of ``[hardware]``.

    Raises:
        TrainError: names the key that is wrong.
    """
    if "workflows" not in top:
        return None
    table = top.table("workflows")
    folder = PurePosixPath(table.text("folder", ".github/workflows"))
    if folder.is_absolute() or ".." in folder.parts:
        raise table.error("folder", "a folder inside the repository", repr(str(folder)))
    minutes, weekday = _minutes(table, 60), table.number("weekday", 1)
    if not 0 <= weekday <= 6:
        raise table.error("weekday", "0 (Sunday) to 6", str(weekday))
    runners = table.table("runners")
    found = []
    for target in runners.names():
        if target not in targets:
            raise runners.error(target, f"names of [hardware]: {', '.join(targets)}", repr(target))
        labels = runners.words(target)
        if not labels:
            raise runners.error(target, "at least one label", "none")
        found.append((target, labels))
    if not found:
        raise table.error("runners", "at least one target with labels", "none")
    platforms = _parse_platforms(table)
    installed = table.words("installed", ())
    if bool(platforms) != bool(installed):
        raise table.error(
            "installed",
            "commands where [workflows.platforms] has machines, and only there",
            repr(installed),
        )
    parsed = Workflows(
        folder=folder,
        minutes=minutes,
        prepare=table.words("prepare"),
        check=table.words("check", ()),
        evidence=table.text("evidence", ""),
        weekday=weekday,
        runners=tuple(found),
        platforms=platforms,
        installed=installed,
        relay=_parse_relay(table, minutes),
        site=_parse_site(table),
        actions=_parse_actions(table.table("actions")),
        registries=tuple(_parse_registry(row) for row in table.rows("registries")),
    )
    for one in (table, runners):
        one.done()
    return parsed


def _parse_platforms(top: Table) -> tuple[tuple[str, tuple[str, ...]], ...]:
    if "platforms" not in top:
        return ()
    table = top.table("platforms")
    found = []
    for name in table.names():
        try:
            platform = platform_of(name)
        except ValueError as error:
            raise table.error(name, str(error), repr(name)) from None
        if platform is None:
            raise table.error(name, "a platform that an index takes, such as win_amd64", repr(name))
        if not table.words(name):
            raise table.error(name, "at least one label", "none")
        found.append((name, table.words(name)))
    table.done()
    return tuple(found)


def _parse_relay(top: Table, default: int) -> Relay | None:
    if "relay" not in top:
        return None
    table = top.table("relay")
    minutes = _minutes(table, default)
    commands = table.words("run")
    if not commands:
        raise table.error("run", "at least one command", "none")
    variables: tuple[tuple[str, str], ...] = ()
    if "environment" in table:
        given = table.table("environment")
        variables = tuple((name, given.text(name)) for name in given.names())
        given.done()
    table.done()
    return Relay(minutes, variables, commands)


def _parse_site(top: Table) -> Site | None:
    if "site" not in top:
        return None
    table = top.table("site")
    found = Site(table.text("build"), table.text("branch"))
    if not _BRANCH.fullmatch(found.branch):
        raise table.error("branch", "a branch's name, such as gh-pages", repr(found.branch))
    table.done()
    return found


def _minutes(table: Table, default: int) -> int:
    found = table.number("minutes", default)
    if not 1 <= found <= 360:
        raise table.error("minutes", "1 to 360", str(found))
    return found


def _parse_actions(table: Table) -> tuple[Action, ...]:
    found = []
    for name in _ACTIONS:
        text = table.text(name)
        match = _PIN.fullmatch(text)
        if match is None:
            raise table.error(name, "a commit of 40 digits and its version: 'SHA v1.2.3'", text)
        found.append(Action(name, match[1], match[2]))
    table.done()
    return tuple(found)


def _parse_registry(row: Table) -> Registry:
    found = Registry(row.text("name"), row.text("upload"), row.text("simple"))
    for key in ("upload", "simple"):
        if not row.text(key).startswith("https://"):
            raise row.error(key, "an address that begins with https://", row.text(key))
    row.done()
    return found
