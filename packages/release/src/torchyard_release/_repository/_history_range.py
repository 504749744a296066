"""The commits since the last release, and their authors."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Final

from torchyard_release._errors import ReleaseError
from torchyard_release._repository._git import Git

PICKED: Final = re.compile(r"\(cherry picked from commit ([0-9a-f]{40})\)")
_CO_AUTHOR: Final = re.compile(
    r"^co-authored-by:\s*(.+?)\s*<(.+?)>\s*$", re.IGNORECASE | re.MULTILINE
)


@dataclass(frozen=True, slots=True)
class Person:
    """A contributor, as .mailmap knows them."""

    name: str
    address: str


@dataclass(frozen=True, slots=True)
class Commit:
    """One commit.

    Attributes:
        sha: its full name.
        subject: its first line.
        message: all of it.
        authors: its author first, then its co-authors; .mailmap is applied to each.
    """

    sha: str
    subject: str
    message: str
    authors: tuple[Person, ...]


@dataclass(frozen=True, slots=True)
class Since:
    """What a release has that the last one had not.

    Attributes:
        previous: the last release's tag; empty for the first release.
        commits: new ones, without merges, oldest first.
        shipped: those that the last release had already, as picks; not among ``commits``.
        contributors: who wrote them, by how many commits and then by name; bots left out.
        bots: who was left out.
    """

    previous: str
    commits: tuple[Commit, ...]
    shipped: tuple[Commit, ...]
    contributors: tuple[tuple[Person, int], ...]
    bots: tuple[Person, ...]

    def sentence(self) -> str:
        """Return "N commits from M contributors since X"."""
        since = f"since {self.previous}" if self.previous else "since the beginning"
        return (
            f"{len(self.commits)} commit{'s' * (len(self.commits) != 1)} from "
            f"{len(self.contributors)} contributor{'s' * (len(self.contributors) != 1)} {since}"
        )


def commits_of(git: Git, *words: str) -> tuple[Commit, ...]:
    """Return the commits that ``git log`` lists for some words, oldest first."""
    listing = git.run("log", "--reverse", "--format=%H%x1f%aN%x1f%aE%x1f%B%x1e", *words)
    found = []
    people: dict[str, Person] = {}
    for record in listing.split("\x1e"):
        if not record.strip():
            continue
        sha, name, address, message = record.lstrip("\n").split("\x1f")
        authors = [Person(name, address)]
        for match in _CO_AUTHOR.finditer(message):
            written = f"{match[1]} <{match[2]}>"
            if written not in people:
                mapped = git.run("check-mailmap", written)
                people[written] = Person(*mapped.removesuffix(">").rsplit(" <", 1))
            authors.append(people[written])
        subject = message.strip().partition("\n")[0]
        found.append(Commit(sha, subject, message, tuple(dict.fromkeys(authors))))
    return tuple(found)


def since(git: Git, previous: str, revision: str, bots: Sequence[str]) -> Since:
    """Return what a revision has that the last release had not.

    A commit that the last release's branch had picked is on main again under another name. It is
    found by its patch, and where a pick was resolved by hand by what ``-x`` wrote into it.

    Args:
        git: the repository.
        previous: the last release's tag; empty for the first release.
        revision: what is released.
        bots: shell patterns of names or addresses that are no contributors.

    Raises:
        ReleaseError: nothing is new.
    """
    if previous:
        span = (f"{previous}...{revision}", "--no-merges", "--right-only")
        everything = commits_of(git, *span)
        fresh = {commit.sha for commit in commits_of(git, *span, "--cherry-pick")}
        picks = git.run("log", "--format=%B", "--left-only", f"{previous}...{revision}")
        named = set(PICKED.findall(picks))
    else:
        everything = commits_of(git, revision, "--no-merges")
        fresh, named = {commit.sha for commit in everything}, set()
    commits = tuple(c for c in everything if c.sha in fresh and c.sha not in named)
    shipped = tuple(c for c in everything if c.sha not in fresh or c.sha in named)
    if not commits:
        raise ReleaseError(
            f"{revision}: nothing is new since {previous or 'the beginning'}",
            "release nothing: an empty release helps nobody",
        )
    count: dict[Person, int] = {}
    for commit in commits:
        for person in commit.authors:
            count[person] = count.get(person, 0) + 1
    robots = {person for person in count if _is_bot(person, bots)}
    people = sorted(
        ((person, number) for person, number in count.items() if person not in robots),
        key=lambda item: (-item[1], item[0].name.lower(), item[0].address),
    )
    return Since(
        previous, commits, shipped, tuple(people), tuple(sorted(robots, key=lambda p: p.name))
    )


def _is_bot(person: Person, patterns: Sequence[str]) -> bool:
    words = (person.name.lower(), person.address.lower())
    return any(_matches(word, pattern.lower()) for word in words for pattern in patterns)


def _matches(word: str, pattern: str) -> bool:
    # "[bot]" is how a bot's name ends, not a choice of three letters.
    return fnmatchcase(word, pattern.replace("[", "[[]"))
