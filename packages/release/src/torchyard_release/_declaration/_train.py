"""The declaration: train.toml as frozen data, the only source of what is released and when."""

from __future__ import annotations

import datetime
from dataclasses import dataclass
from typing import Final

from packaging.version import Version

from torchyard_release._declaration._calendar import Phase
from torchyard_release._declaration._package import Package
from torchyard_release._declaration._workflows import Workflows

FILE: Final = "train.toml"
# As a gate's one cell: those that follow from the train, such as each package.
ANY_CELL: Final = "*"


@dataclass(frozen=True, slots=True)
class Gate:
    """Something that must be so, or be known, before a train leaves.

    Attributes:
        name: a word.
        blocking: whether a red one keeps the train; otherwise it only informs.
        owner: who answers for it.
        cells: one row of the scorecard each; a single empty one where the gate is one row, and
            ``*`` for those that follow from the rest of the train, such as its packages.
        session: a nox session, in which ``{cell}`` is the cell; empty where it is none.
        command: a command instead; empty where the train's own tool records the outcome.
    """

    name: str
    blocking: bool
    owner: str
    cells: tuple[str, ...]
    session: str
    command: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Waiver:
    """An owner's permission to leave although one row of a gate is not green, with an end."""

    gate: str
    cell: str
    owner: str
    reason: str
    expires: datetime.date


@dataclass(frozen=True, slots=True)
class Index:
    """Where artifacts are uploaded, and where they are installed from afterwards.

    Attributes:
        name: a word.
        repository: where to upload: an address, or a name that .pypirc knows.
        simple: where to install from; empty for the installer's own default.
    """

    name: str
    repository: str
    simple: str


@dataclass(frozen=True, slots=True)
class Signing:
    """Who may approve: the public Ed25519 key of each, in hexadecimal, and how many it takes."""

    threshold: int
    keys: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Notes:
    """What release notes are made from.

    Attributes:
        bots: authors that are no contributors; shell patterns.
        highlights: the file that the notes open with, relative to the root; may be empty.
        features: the table of features, relative to the root; may be empty.
        vocabulary: ``beta`` or ``api``: which words the table of features uses.
    """

    bots: tuple[str, ...]
    highlights: str
    features: str
    vocabulary: str


@dataclass(frozen=True, slots=True)
class Train:
    """One train: a version of every package of a repository, and the way there.

    Attributes:
        name: of the project.
        version: what the tree is: X.Y.Z, with ``.devN`` until the branch is cut.
        previous: the tag of the last release; empty before the first.
        departs: the day on which it is published.
        months: how many months after it the next one leaves.
        main: the branch that trains are cut from.
        remote: the git remote that branches and tags are pushed to, by hand.
        owner: who answers for what names no owner of its own.
        python: the Python versions that are verified and claimed, oldest first.
        pins: ``exact`` or ``compatible``: how a released package requires its siblings.
        runbook: the file of numbered steps, relative to the root.
        pages: files with a table of the packages, relative to the root.
        phases: in the order of the calendar.
        torch: the oldest and the newest torch that a release is verified with; empty for none.
        hardware: what each target of verification is, by name.
        workflows: where its jobs run; None for nowhere.
        packages: in the order of the file.
    """

    name: str
    version: Version
    previous: str
    departs: datetime.date
    months: int
    main: str
    remote: str
    owner: str
    python: tuple[str, ...]
    pins: str
    runbook: str
    pages: tuple[str, ...]
    torch: tuple[str, str]
    hardware: tuple[tuple[str, str], ...]
    phases: tuple[Phase, ...]
    gates: tuple[Gate, ...]
    waivers: tuple[Waiver, ...]
    indexes: tuple[Index, ...]
    signing: Signing
    notes: Notes
    workflows: Workflows | None
    packages: tuple[Package, ...]

    @property
    def release(self) -> str:
        """The version that is released: X.Y.Z."""
        return self.version.base_version

    @property
    def series(self) -> str:
        """What all packages share: X.Y."""
        return f"{self.version.major}.{self.version.minor}"

    @property
    def tag(self) -> str:
        """The tag of the release."""
        return f"v{self.release}"

    @property
    def branch(self) -> str:
        """The branch of the series."""
        return f"release/{self.series}"

    @property
    def requires_python(self) -> str:
        """What every package says to installers."""
        return f">={self.python[0]}"

    def candidate_tag(self, number: int) -> str:
        """Return the tag of a candidate, which counts from 1."""
        return f"{self.tag}-rc{number}"

    def version_of(self, package: Package) -> str:
        """Return the version that a package has in this tree: the series, and its own patch."""
        patch = self.version.micro if package.patch is None else package.patch
        development = f".dev{self.version.dev}" if self.version.dev is not None else ""
        return f"{self.series}.{patch}{development}"

    def pin_of(self, package: Package) -> str:
        """Return the specifier by which siblings require a package.

        A tree in development pins exactly. A release pins as the train says: ``compatible`` lets
        every patch of the series in, so that a patch of one package needs none of the others.
        """
        if self.version.dev is not None or self.pins == "exact":
            return f"=={self.version_of(package)}"
        return f"~={self.series}.0"

    def package(self, name: str) -> Package:
        """Return a package by the name of its distribution; LookupError if there is none."""
        for package in self.packages:
            if package.name == name:
                return package
        raise LookupError(f"{name}: no package of train {self.name}")

    def phase_on(self, day: datetime.date) -> Phase | None:
        """Return the phase that a day lies in; None before the first."""
        begun = [phase for phase in self.phases if phase.begins(self.departs) <= day]
        return begun[-1] if begun else None
