"""Find every second copy that differs from train.toml; rewrite those that can be derived."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

import click
import tomlkit
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.version import Version

from torchyard_release._atomic import write_atomically
from torchyard_release._copies._drift import Derived, Drift
from torchyard_release._copies._matrix import derive_matrix
from torchyard_release._copies._pages import derive_pages
from torchyard_release._copies._projects import derive_projects
from torchyard_release._copies._runbook import derive_runbook
from torchyard_release._copies._workflows import derive_workflows
from torchyard_release._declaration._train import FILE, Train
from torchyard_release._errors import WorkspaceError

_CONSTRAINTS: Final = "constraints.txt"


def derive(
    root: Path, train: Train, files: Sequence[str], commands: click.Group, *, nox: bool = True
) -> Derived:
    """Compare every copy with the declaration.

    Args:
        root: of the repository.
        train: the declaration.
        files: those that belong to the repository, relative to the root.
        commands: the group ``torchyard release``, which the runbook speaks of.
        nox: whether to ask nox for its sessions, which takes a second.

    Raises:
        WorkspaceError: nothing could be compared, or a file cannot be read.
    """
    parts = [
        derive_projects(root, train),
        derive_pages(root, train, files),
        derive_runbook(root, train, commands),
        derive_workflows(root, train),
        _constraints(root, train),
        _undeclared(root, train, files),
    ]
    if nox:
        parts.append(derive_matrix(root, train))
    seen = sum(part.seen for part in parts)
    if not seen:
        raise WorkspaceError(f"{root}: nothing to compare with {FILE}", "look at `packages`")
    return Derived(
        tuple(sorted(drift for part in parts for drift in part.drifts)),
        {path: text for part in parts for path, text in part.texts.items()},
        seen,
    )


def write_derived(root: Path, derived: Derived) -> tuple[str, ...]:
    """Write what was derived; return the paths."""
    for path, text in sorted(derived.texts.items()):
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        write_atomically(root / path, text.encode())
    return tuple(sorted(derived.texts))


def with_version(
    text: str, version: str, patches: dict[str, int | None], previous: str = ""
) -> str:
    """Return train.toml's text with another version, its form kept.

    Args:
        text: the declaration.
        version: X.Y.Z, or X.Y.Z.devN.
        previous: the tag of the release before; empty leaves it as it is.
        patches: a patch of its own for packages that have one now; None where it follows the
            train's.
    """
    document = tomlkit.parse(text)
    train = document["train"]
    assert isinstance(train, tomlkit.items.Table)
    train["version"] = version
    if previous:
        train["previous"] = previous
    packages = document["packages"]
    for name, patch in patches.items():
        table = packages[name]
        assert isinstance(table, tomlkit.items.Table)
        if patch is not None:
            table["patch"] = patch
        elif "patch" in table:
            del table["patch"]
    return tomlkit.dumps(document)


def _constraints(root: Path, train: Train) -> Derived:
    """The torch that this tree is tested with must be one that the train is about."""
    path = root / _CONSTRAINTS
    least, most = train.torch
    if not path.is_file() or not least:
        return Derived((), {}, 0)
    drifts = []
    seen = 0
    allowed = SpecifierSet(f">={least},<={most}") if most else SpecifierSet(f">={least}")
    for line in path.read_text(encoding="utf-8").splitlines():
        if line.partition("==")[0].strip() == "torch":
            seen += 1
            version = Version(next(iter(Requirement(line).specifier)).version)
            if version not in allowed:
                said = f"torch{allowed}"
                drifts.append(Drift(_CONSTRAINTS, "torch", str(version), said, "correct one"))
    return Derived(tuple(drifts), {}, seen)


def _undeclared(root: Path, train: Train, files: Sequence[str]) -> Derived:
    """A folder with a package that no train takes along is an oversight, or says so."""
    declared = {str(package.folder / "pyproject.toml") for package in train.packages}
    drifts = []
    for path in files:
        if not path.endswith("/pyproject.toml") or path in declared or "/tests/" in path:
            continue
        project = tomlkit.parse((root / path).read_text(encoding="utf-8")).get("project")
        if project is not None:
            name = str(project.get("name"))
            drifts.append(
                Drift(path, "package", name, "no such", f"add [packages.{name}] to {FILE}")
            )
    return Derived(tuple(drifts), {}, len(declared))
