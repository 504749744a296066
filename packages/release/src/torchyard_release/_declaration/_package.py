"""One package of the train, as train.toml declares it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import PurePosixPath

from packaging.utils import canonicalize_name


@dataclass(frozen=True, slots=True)
class Package:
    """A distribution.

    Attributes:
        name: of the distribution, as published.
        module: the one top-level name that it imports as.
        folder: where it is, relative to the root of the repository.
        requires: the siblings that it requires, extras left out.
        torch: the specifier of the torch that users may have; empty where it needs none.
        hardware: the targets on which it is verified.
        wheels: the tag of every wheel that a release has, such as ``py3-none-any``.
        contains: shell patterns, each of which must match a file in every wheel.
        contains_on: shell patterns of platforms, such as ``manylinux_*`` -> of files, likewise, in
            the wheels of these platforms.
        budget: the greatest size of one artifact, in bytes.
        owner: who answers for it.
        patch: its own patch number, or None where it follows the train's.
        reverse: whether it is a plugin whose tests are run, from its tag, with a newer train.
        version_files: Python files, relative to the folder, that hold its version.
    """

    name: str
    module: str
    folder: PurePosixPath
    requires: tuple[str, ...]
    torch: str
    hardware: tuple[str, ...]
    wheels: tuple[str, ...]
    contains: tuple[str, ...]
    contains_on: tuple[tuple[str, tuple[str, ...]], ...]
    budget: int
    owner: str
    patch: int | None
    reverse: bool
    version_files: tuple[str, ...]

    @property
    def stem(self) -> str:
        """Its name as file names of artifacts write it."""
        return canonicalize_name(self.name).replace("-", "_")
