"""The workspace: a repository's declaration, folders, git and state."""

from __future__ import annotations

import contextlib
import tempfile
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from torchyard_release._declaration._graph import closure, in_order
from torchyard_release._declaration._package import Package
from torchyard_release._declaration._parse import parse_train, read_train
from torchyard_release._declaration._train import FILE, Train
from torchyard_release._errors import TrainError, WorkspaceError
from torchyard_release._records._journal import Journal
from torchyard_release._records._state import FOLDER, ReleaseState, State
from torchyard_release._repository._git import Git


@dataclass(frozen=True, slots=True)
class Workspace:
    """One checkout of a repository with a train.toml.

    Attributes:
        root: its top folder.
        train: the declaration.
        git: its git.
        state: what the commands keep.
        packages: those of the train, each after all that it requires.
    """

    root: Path
    train: Train
    git: Git
    state: State
    packages: tuple[Package, ...]

    @classmethod
    def find(cls, start: Path, state: Path | None = None) -> Workspace:
        """Return the workspace that a folder lies in.

        Args:
            start: the folder, or one below the root.
            state: where the state folder is instead of in the root.

        Raises:
            TrainError: there is no train.toml, or it is wrong.
            CycleError: packages require one another in a circle.
            WorkspaceError: a folder that it names is no package.
        """
        start = start.resolve()
        for folder in (start, *start.parents):
            if (folder / FILE).is_file():
                return cls.read(folder, state)
        raise TrainError(
            f"{FILE}: neither in {start} nor in a folder above it",
            "go to the repository, or name it: `torchyard release --root FOLDER ...`",
        )

    @classmethod
    def read(cls, root: Path, state: Path | None = None) -> Workspace:
        """Return the workspace at a root; see :meth:`find`."""
        train = read_train(root)
        packages = _ordered_packages(train)
        for package in packages:
            if not (root / package.folder / "pyproject.toml").is_file():
                raise WorkspaceError(
                    f"{FILE}: [packages.{package.name}] folder: {package.folder} has no "
                    f"pyproject.toml",
                    "correct the folder, or take the package out of the train",
                )
        return cls(root, train, Git(root), State(state or root / FOLDER), packages)

    def declared(self, commit: str) -> Workspace:
        """Return this workspace with the train.toml of a commit; its files stay the checkout's."""
        train = parse_train(self.git.run("show", f"{commit}:{FILE}"))
        return replace(self, train=train, packages=_ordered_packages(train))

    @contextlib.contextmanager
    def at(self, commit: str) -> Iterator[Workspace]:
        """Give the tree of a commit instead of the checkout, for as long as the block lasts.

        Its git and what the commands keep stay those of the repository.
        """
        with tempfile.TemporaryDirectory(prefix="train-tree-") as name:
            root = Path(name) / "tree"
            self.git.export(commit, root)
            tree = Workspace.read(root, self.state.folder)
            yield replace(tree, git=self.git)

    @property
    def release(self) -> ReleaseState:
        """What is kept of the release that the declaration is about."""
        return self.state.release(self.train.release)

    @contextlib.contextmanager
    def operation(self, argv: Sequence[str]) -> Iterator[Journal]:
        """Hold the train while a command works; see :meth:`State.operation`."""
        commit, actor = self.git.commit(), self.git.actor()
        with self.state.operation(self.train.release, argv, commit, actor) as journal:
            yield journal

    def version_of(self, name: str) -> str:
        """Return a package's version in this tree."""
        return self.train.version_of(self.train.package(name))

    def dependents(self, *names: str) -> tuple[str, ...]:
        """Return the packages and all that require them, directly or not, in order."""
        required_by: dict[str, list[str]] = {package.name: [] for package in self.packages}
        for package in self.packages:
            for sibling in package.requires:
                required_by[sibling].append(package.name)
        return self._ordered(closure(names, required_by))

    def requirements(self, *names: str) -> tuple[str, ...]:
        """Return the packages and all siblings that they require, directly or not, in order."""
        requires = {package.name: package.requires for package in self.packages}
        return self._ordered(closure(names, requires))

    def project(self, package: Package) -> Mapping[str, Any]:
        """Return the ``[project]`` table of a package's pyproject.toml."""
        path = self.root / package.folder / "pyproject.toml"
        try:
            data = tomllib.loads(path.read_text(encoding="utf-8"))
        except (OSError, tomllib.TOMLDecodeError) as error:
            raise WorkspaceError(
                f"{path}: expected a pyproject.toml, got: {error}", "correct it"
            ) from error
        table = data.get("project")
        if not isinstance(table, dict):
            raise WorkspaceError(f"{path}: it has no [project] table", "write one")
        return table

    def _ordered(self, names: frozenset[str]) -> tuple[str, ...]:
        return tuple(package.name for package in self.packages if package.name in names)


def _ordered_packages(train: Train) -> tuple[Package, ...]:
    """Return a train's packages, each after all that it requires."""
    order = in_order({package.name: package.requires for package in train.packages})
    return tuple(train.package(name) for name in order)
