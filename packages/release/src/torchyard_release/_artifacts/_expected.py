"""The exact file names that a train must consist of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from packaging.utils import (
    InvalidSdistFilename,
    InvalidWheelFilename,
    canonicalize_name,
    parse_sdist_filename,
    parse_wheel_filename,
)

from torchyard_release._artifacts._findings import Fault, Finding
from torchyard_release._declaration._package import Package
from torchyard_release._declaration._train import Train


def expected_files(train: Train, packages: Sequence[Package]) -> dict[str, Package]:
    """Return the name of every artifact that the packages must have, with its package."""
    found = {}
    for package in packages:
        version = train.version_of(package)
        found[f"{package.stem}-{version}.tar.gz"] = package
        for tag in package.wheels:
            found[f"{package.stem}-{version}-{tag}.whl"] = package
    return found


def compare_sets(
    train: Train, packages: Sequence[Package], files: Mapping[str, Path]
) -> list[Finding]:
    """Find what is missing, what is there besides, and say of each why.

    A file whose name differs from an expected one in its tag or its version alone is called so, and
    the expected one is missing all the same.
    """
    if not files:
        return [
            Finding("", Fault.EMPTY, "no artifact is there", "build: `torchyard release build`")
        ]
    expected = expected_files(train, packages)
    findings = [
        Finding(
            name,
            Fault.MISSING,
            f"{package.name} must have it",
            "build again: `torchyard release build --again`; if it is not meant to be, correct "
            "`wheels` in train.toml",
        )
        for name, package in expected.items()
        if name not in files
    ]
    for name in files:
        if name not in expected:
            findings.append(_unexpected(name, train, packages))
    return findings


def _unexpected(name: str, train: Train, packages: Sequence[Package]) -> Finding:
    declare = "correct train.toml if it is meant to be; otherwise find out what made it"
    try:
        if name.endswith(".whl"):
            distribution, version, _, tags = parse_wheel_filename(name)
        else:
            distribution, version = parse_sdist_filename(name)
            tags = frozenset()
    except (InvalidWheelFilename, InvalidSdistFilename) as error:
        return Finding(name, Fault.WRONG_NAME, str(error), declare)
    for package in packages:
        if canonicalize_name(package.name) != distribution:
            continue
        wanted = train.version_of(package)
        if str(version) != wanted:
            return Finding(name, Fault.WRONG_VERSION, f"expected {wanted}, got {version}", declare)
        if tags:
            got = ", ".join(sorted(map(str, tags)))
            wheels = ", ".join(package.wheels)
            return Finding(name, Fault.WRONG_TAG, f"expected {wheels}, got {got}", declare)
    return Finding(name, Fault.EXTRA, "the train does not have it", declare)
