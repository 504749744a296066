"""Writes another version into train.toml and every copy of it."""

from __future__ import annotations

import re
from pathlib import Path

import click
from packaging.version import Version

from torchyard_release._atomic import write_atomically
from torchyard_release._copies._check import derive, with_version, write_derived
from torchyard_release._declaration._graph import closure
from torchyard_release._declaration._parse import parse_train
from torchyard_release._declaration._train import FILE, Train
from torchyard_release._errors import GitError
from torchyard_release._repository._git import Git


def bump_tree(root: Path, git: Git, version: str, commands: click.Group) -> tuple[str, ...]:
    """Write a version into a work tree; return the paths of the files that changed.

    A version X.Y.0 takes every package's own patch away. In X.Y.Z, a package in whose folder
    nothing changed since the release before keeps the patch that it has: it is not released again.
    Where siblings are pinned exactly, what requires a package that changed goes with it.

    Raises:
        TrainError: the version is none.
        GitError: the release before X.Y.Z has no tag.
    """
    path = root / FILE
    text = path.read_text(encoding="utf-8")
    # What is no version is refused before anything is written.
    plain = parse_train(with_version(text, version, {}))
    after = with_version(text, version, _patches(git, plain), _newest_release(git, plain.version))
    train = parse_train(after)
    write_atomically(path, after.encode())
    derived = derive(root, train, git.files(), commands, nox=False)
    return (FILE, *write_derived(root, derived))


def previous_tag(version: Version) -> str:
    """Return the tag of the release that a patch follows; empty for X.Y.0."""
    if not version.micro:
        return ""
    return f"v{version.major}.{version.minor}.{version.micro - 1}"


def _newest_release(git: Git, version: Version) -> str:
    """Return the tag of the newest release below a version; empty where there is none."""
    released = [Version(tag[1:]) for tag in git.tags("v*") if re.fullmatch(r"v\d+\.\d+\.\d+", tag)]
    below = [found for found in released if found < version]
    return f"v{max(below)}" if below else ""


def departing(git: Git, train: Train) -> tuple[str, ...]:
    """Return the packages that a train takes along: all, or in a patch those with a new version."""
    tag = previous_tag(train.version)
    if not tag:
        return tuple(package.name for package in train.packages)
    before = _train_at(git, tag)
    old = {package.name: before.version_of(package) for package in before.packages}
    return tuple(
        package.name
        for package in train.packages
        if old.get(package.name) != train.version_of(package)
    )


def _patches(git: Git, train: Train) -> dict[str, int | None]:
    """Return the patch that each package keeps, or None where it gets the train's."""
    tag = previous_tag(train.version)
    if not tag:
        return {package.name: None for package in train.packages}
    before = _train_at(git, tag)
    old = {package.name: before.version_of(package) for package in before.packages}
    raised = {
        package.name
        for package in train.packages
        if package.name not in old
        or not git.succeeds("diff", "--quiet", tag, "--", str(package.folder))
    }
    if train.pins == "exact":
        # Whoever requires the old version exactly would keep the new one out.
        required_by: dict[str, list[str]] = {}
        for package in train.packages:
            for sibling in package.requires:
                required_by.setdefault(sibling, []).append(package.name)
        raised |= closure(sorted(raised), required_by)
    return {
        package.name: None if package.name in raised else Version(old[package.name]).micro
        for package in train.packages
    }


def _train_at(git: Git, tag: str) -> Train:
    if not git.has_tag(tag):
        raise GitError(
            f"{tag}: no such tag: a patch follows a release",
            "`git fetch --tags` brings it; a first release is X.Y.0",
        )
    return parse_train(git.run("show", f"{tag}:{FILE}"))
