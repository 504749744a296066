"""Profiles: the laws that are tried, and those that must pass."""

from __future__ import annotations

import hashlib
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.resources import files
from typing import Final

from torchyard import EvidenceLevel, arguments
from torchyard_conformance._law import Law
from torchyard_conformance._spec import SPEC_VERSION

_JOIN: Final = "+"
# Begins a line of a list that takes a law away.
_WITHOUT: Final = "without"


class ProfileError(ValueError):
    """A profile does not exist, or contradicts the laws."""


@dataclass(frozen=True, slots=True)
class MustPass:
    """A law that must pass.

    Attributes:
        law: its id.
        contract: only where the plugin implements this one; empty: always.
    """

    law: str
    contract: str


@dataclass(frozen=True, slots=True)
class Profile:
    """A selection of laws.

    Attributes:
        name: its name; of several together, theirs, sorted and joined by ``+``.
        summary: one line for a person.
        includes: every profile whose laws are tried: itself, and what it includes.
        contracts: a plugin that implements one of these is judged by this profile unless told
            otherwise; empty: every plugin is; None: none.
        quick: whether laws try few cases.
        level: the most that it proves: of what an interpreter or an emulator stands for no more
            than that it is right when emulated.
        lists: the text of each list of laws that must pass, by the list's name. A line that begins
            with ``without`` names a law that no profile joined with it tries.
    """

    name: str
    summary: str
    includes: frozenset[str]
    contracts: tuple[str, ...] | None
    quick: bool
    level: EvidenceLevel
    lists: tuple[tuple[str, str], ...]

    @property
    def digest(self) -> str:
        """sha256, in hexadecimal, over the names and texts of the lists."""
        digest = hashlib.sha256()
        for name, text in self.lists:
            digest.update(f"{name}\n{text}\n".encode())
        return digest.hexdigest()

    def applies(self, law: Law) -> bool:
        """Return whether a law is tried."""
        return law.id not in self._without() and not self.includes.isdisjoint(law.profiles)

    def mustpass(self, contracts: tuple[str, ...]) -> tuple[str, ...]:
        """Return the laws that must pass for a plugin that implements some contracts, sorted."""
        return tuple(sorted({row.law for row in self._rows() if row.contract in {"", *contracts}}))

    def requires(self, law: str) -> bool:
        """Return whether a law must pass for some plugin."""
        return any(row.law == law for row in self._rows())

    def check(self, laws: tuple[Law, ...]) -> None:
        """Hold the profile against the laws.

        Raises:
            ProfileError: a list names a law that is unknown or not tried, or is empty.
        """
        tried = {law.id for law in laws if self.applies(law)}
        named = {row.law for row in self._rows()} | (self._without() - {law.id for law in laws})
        if not named:
            raise ProfileError(f"profile {self.name!r}: expected laws that must pass, found none")
        if unknown := sorted(named - tried):
            raise ProfileError(
                f"profile {self.name!r}: expected laws that it tries, got {', '.join(unknown)}"
            )

    def _rows(self) -> tuple[MustPass, ...]:
        without = self._without()
        return tuple(
            MustPass(law, " ".join(contract))
            for law, *contract in self._lines()
            if law != _WITHOUT and law not in without
        )

    def _without(self) -> frozenset[str]:
        return frozenset(law for word, *laws in self._lines() if word == _WITHOUT for law in laws)

    def _lines(self) -> Iterator[list[str]]:
        """Return the words of each line of each list."""
        for _, text in self.lists:
            for line in text.splitlines():
                if words := line.partition("#")[0].split():
                    yield words


def profile_names() -> tuple[str, ...]:
    """Return the names of all profiles, sorted."""
    folder = files("torchyard_conformance") / "profiles"
    found = (entry.name for entry in folder.iterdir())
    return tuple(sorted(name.removesuffix(".toml") for name in found if name.endswith(".toml")))


def read_profile(name: str, spec: str = SPEC_VERSION) -> Profile:
    """Return a profile, or several whose names are joined by ``+`` as one.

    Args:
        name: what ``Profile.name`` says.
        spec: the version of the lists.

    Raises:
        TypeError: an argument is no string.
        ProfileError: no such profile, or no list of that version.
    """
    arguments.instance("read_profile", "name", name, str, "a string")
    arguments.instance("read_profile", "spec", spec, str, "a string")
    names = sorted(set(name.split(_JOIN)))
    found = [_read(item, spec) for item in names]
    if len(found) == 1:
        return found[0]
    return Profile(
        name=_JOIN.join(names),
        summary="; ".join(item.summary for item in found),
        includes=frozenset().union(*(item.includes for item in found)),
        contracts=None,
        quick=all(item.quick for item in found),
        level=min((item.level for item in found), key=lambda level: level.rank),
        lists=tuple(sorted({pair for item in found for pair in item.lists})),
    )


def default_profile(contracts: tuple[str, ...]) -> Profile:
    """Return what a plugin is judged by where nobody says: what its contracts ask for."""
    chosen = []
    for name in profile_names():
        wanted = read_profile(name).contracts
        if wanted is not None and (not wanted or set(wanted) & set(contracts)):
            chosen.append(name)
    return read_profile(_JOIN.join(chosen))


def _read(name: str, spec: str) -> Profile:
    if name not in profile_names():
        raise ProfileError(f"profile: expected one of {', '.join(profile_names())}, got {name!r}")
    folder = files("torchyard_conformance")
    data = tomllib.loads((folder / "profiles" / f"{name}.toml").read_text(encoding="utf-8"))
    file = f"{name}-{spec}.txt"
    listed = folder / "mustpass" / file
    if not listed.is_file():
        start, end = f"{name}-", ".txt"
        kept = sorted(
            entry.name.removeprefix(start).removesuffix(end)
            for entry in (folder / "mustpass").iterdir()
            if entry.name.startswith(start)
        )
        raise ProfileError(
            f"spec: profile {name!r}: expected a list of version {spec}, found none; there is "
            f"{', '.join(kept)}"
        )
    parents = [_read(item, spec) for item in data.get("includes", [])]
    return Profile(
        name=name,
        summary=data["summary"],
        includes=frozenset({name}).union(*(item.includes for item in parents)),
        contracts=tuple(data["contracts"]) if "contracts" in data else None,
        quick=data.get("quick", False),
        level=EvidenceLevel(data.get("level", EvidenceLevel.AT_LIMIT)),
        lists=tuple(
            sorted(
                {
                    (file, listed.read_text(encoding="utf-8")),
                    *(pair for item in parents for pair in item.lists),
                }
            )
        ),
    )
