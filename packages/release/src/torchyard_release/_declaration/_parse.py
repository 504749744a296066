"""Parses train.toml into a :class:`Train`; errors name the key."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path, PurePosixPath
from typing import Final

from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.tags import parse_tag
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from torchyard_release._declaration._calendar import Phase
from torchyard_release._declaration._package import Package
from torchyard_release._declaration._platform import platform_of
from torchyard_release._declaration._table import Table
from torchyard_release._declaration._train import (
    ANY_CELL,
    FILE,
    Gate,
    Index,
    Notes,
    Signing,
    Train,
    Waiver,
)
from torchyard_release._declaration._workflows import parse_workflows
from torchyard_release._errors import TrainError

_SCHEMA: Final = 1
_WORD: Final = re.compile(r"[a-z][a-z0-9_-]*")
_UNITS: Final = {"B": 1, "kB": 1000, "MB": 1000**2, "GB": 1000**3}


def read_train(root: Path) -> Train:
    """Read the declaration at the root of a repository; TrainError says what is wrong with it."""
    path = root / FILE
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise TrainError(
            f"{path}: {error.strerror or error}", "write a train.toml: docs/release.md has one"
        ) from error
    return parse_train(text)


def parse_train(text: str) -> Train:
    """Return the train that a text declares; TrainError names the key that is wrong."""
    try:
        data = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise TrainError(f"{FILE}: expected TOML, got: {error}", f"correct {FILE}") from error
    top = Table(data, FILE)
    schema = top.number("schema")
    if schema != _SCHEMA:
        raise TrainError(
            f"{FILE}: schema: expected {_SCHEMA}, got {schema}",
            "use the torchyard-release that the file was written for",
        )
    train = top.table("train")
    torch = top.table("torch", {})
    hardware = top.table("hardware", {})
    targets = tuple((name, hardware.text(name)) for name in hardware.names())
    owner = train.text("owner")
    parsed = Train(
        name=train.text("name"),
        version=_parse_version(train, "version"),
        previous=train.text("previous", ""),
        departs=train.day("departs"),
        months=_at_least(train, "months", 1),
        main=train.text("main", "main"),
        remote=train.text("remote", "origin"),
        owner=owner,
        python=_parse_pythons(train),
        pins=_parse_choice(train, "pins", ("exact", "compatible")),
        runbook=train.text("runbook", "RELEASE.md"),
        pages=train.words("pages", ()),
        torch=(torch.text("minimum", ""), torch.text("maximum", "")),
        hardware=targets,
        phases=_parse_phases(top),
        gates=tuple(_parse_gate(row, owner) for row in top.rows("gates")),
        waivers=tuple(_parse_waiver(row) for row in top.rows("waivers")),
        indexes=_parse_indexes(top),
        signing=_parse_signing(top.table("signing", {})),
        notes=_parse_notes(top.table("notes", {})),
        workflows=parse_workflows(top, tuple(name for name, _ in targets)),
        packages=_parse_packages(top, owner, tuple(name for name, _ in targets)),
    )
    for table in (top, train, torch, hardware):
        table.done()
    _agree(parsed)
    return parsed


def _parse_version(table: Table, key: str) -> Version:
    text = table.text(key)
    try:
        version = Version(text)
    except InvalidVersion:
        raise table.error(key, "a version X.Y.Z or X.Y.Z.devN", repr(text)) from None
    plain = version.epoch == 0 and not version.pre and version.post is None and not version.local
    if len(version.release) != 3 or not plain or str(version) != text:
        raise table.error(key, "a version X.Y.Z or X.Y.Z.devN", repr(text))
    return version


def _parse_pythons(table: Table) -> tuple[str, ...]:
    pythons = table.words("python")
    if not pythons or not all(re.fullmatch(r"3\.\d+", python) for python in pythons):
        raise table.error("python", 'Python versions such as ["3.11", "3.12"]', repr(pythons))
    if list(pythons) != sorted(set(pythons), key=Version):
        raise table.error("python", "versions in ascending order, each once", repr(pythons))
    return pythons


def _parse_choice(table: Table, key: str, choices: tuple[str, ...]) -> str:
    value = table.text(key, choices[0])
    if value not in choices:
        raise table.error(key, " or ".join(map(repr, choices)), repr(value))
    return value


def _at_least(table: Table, key: str, least: int) -> int:
    value = table.number(key)
    if value < least:
        raise table.error(key, f"at least {least}", str(value))
    return value


def _parse_word(table: Table, key: str) -> str:
    value = table.text(key)
    if not _WORD.fullmatch(value):
        raise table.error(key, "lower-case letters, digits, - and _", repr(value))
    return value


def _parse_phases(top: Table) -> tuple[Phase, ...]:
    rows = top.rows("phases")
    phases: list[Phase] = []
    for row in rows:
        days = row.number("days")
        if phases and days <= phases[-1].days:
            raise row.error("days", f"more than {phases[-1].days}, the phase before", str(days))
        phases.append(
            Phase(_parse_word(row, "name"), days, row.text("what"), row.words("picks", ()))
        )
        row.done()
    if not phases or not any(phase.days == 0 for phase in phases):
        raise top.error("phases", "[[phases]], one of them with days = 0: the departure", "none")
    return tuple(phases)


def _parse_gate(row: Table, owner: str) -> Gate:
    gate = Gate(
        name=_parse_word(row, "name"),
        blocking=_parse_choice(row, "level", ("blocking", "informing")) == "blocking",
        owner=row.text("owner", owner),
        cells=row.words("cells", ("",)),
        session=row.text("session", ""),
        command=row.words("command", ()),
    )
    row.done()
    if gate.session and gate.command:
        raise row.error("command", "a session or a command", "both")
    if not gate.cells or len(set(gate.cells)) != len(gate.cells):
        raise row.error("cells", "at least one cell, each once", repr(gate.cells))
    return gate


def _parse_waiver(row: Table) -> Waiver:
    waiver = Waiver(
        gate=row.text("gate"),
        cell=row.text("cell", ""),
        owner=row.text("owner"),
        reason=row.text("reason"),
        expires=row.day("expires"),
    )
    row.done()
    return waiver


def _parse_indexes(top: Table) -> tuple[Index, ...]:
    table = top.table("indexes", {})
    found = []
    for name in table.names():
        row = table.table(name)
        found.append(Index(name, row.text("repository"), row.text("simple", "")))
        row.done()
    return tuple(found)


def _parse_signing(table: Table) -> Signing:
    keys = table.table("keys", {})
    pairs = []
    for name in keys.names():
        text = keys.text(name)
        if not re.fullmatch(r"[0-9a-f]{64}", text):
            raise keys.error(name, "an Ed25519 public key, 64 hexadecimal digits", repr(text))
        pairs.append((name, text))
    threshold = table.number("threshold", 1)
    if threshold < 1:
        raise table.error("threshold", "at least 1", str(threshold))
    if pairs and threshold > len(pairs):
        raise table.error("threshold", f"at most {len(pairs)}, the number of keys", str(threshold))
    table.done()
    return Signing(threshold, tuple(pairs))


def _parse_notes(table: Table) -> Notes:
    notes = Notes(
        bots=table.words("bots", ()),
        highlights=table.text("highlights", ""),
        features=table.text("features", ""),
        vocabulary=_parse_choice(table, "vocabulary", ("beta", "api")),
    )
    table.done()
    return notes


def _parse_packages(top: Table, owner: str, targets: tuple[str, ...]) -> tuple[Package, ...]:
    table = top.table("packages")
    packages = []
    for name in table.names():
        row = table.table(name)
        packages.append(_parse_package(name, row, owner, targets))
        row.done()
    if not packages:
        raise top.error("packages", "at least one [packages.NAME]", "none")
    return tuple(packages)


def _parse_package(name: str, row: Table, owner: str, targets: tuple[str, ...]) -> Package:
    try:
        Requirement(name)
    except InvalidRequirement:
        raise row.error("name", "the name of a distribution", repr(name)) from None
    package = Package(
        name=name,
        module=row.text("module", canonicalize_name(name).replace("-", "_")),
        folder=PurePosixPath(row.text("folder")),
        requires=row.words("requires", ()),
        torch=row.text("torch", ""),
        hardware=row.words("hardware", ()),
        wheels=row.words("wheels", ("py3-none-any",)),
        contains=row.words("contains", ()),
        contains_on=_parse_contains(row),
        budget=_parse_size(row, "budget"),
        owner=row.text("owner", owner),
        patch=row.number("patch") if "patch" in row else None,
        reverse=row.flag("reverse", False),
        version_files=row.words("version_files", ()),
    )
    if not package.module.isidentifier():
        raise row.error("module", "the name of a Python package", repr(package.module))
    if package.folder.is_absolute() or ".." in package.folder.parts:
        raise row.error("folder", "a folder inside the repository", repr(str(package.folder)))
    try:
        SpecifierSet(package.torch)
    except InvalidSpecifier:
        raise row.error("torch", 'a specifier such as ">=2.11"', repr(package.torch)) from None
    for target in package.hardware:
        if target not in targets:
            raise row.error("hardware", f"names of [hardware]: {', '.join(targets)}", repr(target))
    for tag in package.wheels:
        if tag.count("-") != 2 or not parse_tag(tag):
            raise row.error("wheels", "tags such as py3-none-any", repr(tag))
        try:
            platform_of(tag)
        except ValueError as error:
            raise row.error("wheels", str(error), repr(tag)) from None
    if len(set(package.wheels)) != len(package.wheels):
        raise row.error("wheels", "each tag once", repr(package.wheels))
    if package.patch is not None and package.patch < 0:
        raise row.error("patch", "at least 0", str(package.patch))
    return package


def _parse_contains(row: Table) -> tuple[tuple[str, tuple[str, ...]], ...]:
    if "contains_on" not in row:
        return ()
    table = row.table("contains_on")
    found = tuple((name, table.words(name)) for name in table.names())
    table.done()
    return found


def _parse_size(row: Table, key: str) -> int:
    text = row.text(key)
    match = re.fullmatch(r"(\d+) ?(B|kB|MB|GB)", text)
    if match is None or not int(match[1]):
        raise row.error(key, 'a size such as "2 MB" or "300 kB"', repr(text))
    return int(match[1]) * _UNITS[match[2]]


def _agree(train: Train) -> None:
    """Refuse what is right key by key and wrong together."""
    names = [package.name for package in train.packages]
    for package in train.packages:
        for sibling in package.requires:
            if sibling not in names:
                raise TrainError(
                    f"{FILE}: [packages.{package.name}] requires: expected siblings, got "
                    f"{sibling!r}, which is no package of the train",
                    "correct the name, or remove it: other requirements are in pyproject.toml",
                )
    _once("folder of a package", [str(package.folder) for package in train.packages])
    _once("package", [package.stem for package in train.packages])
    _once("gate", [gate.name for gate in train.gates])
    _once("phase", [phase.name for phase in train.phases])
    gates = {gate.name: gate for gate in train.gates}
    for waiver in train.waivers:
        cells = gates[waiver.gate].cells if waiver.gate in gates else ()
        # The cells of "*" follow from the train; the scorecard names a waiver of none of them.
        if waiver.cell not in cells and ANY_CELL not in cells:
            raise TrainError(
                f"{FILE}: [[waivers]] gate {waiver.gate!r}, cell {waiver.cell!r}: no gate has "
                f"that row",
                "name a gate and one of its cells, or remove the waiver",
            )


def _once(what: str, names: list[str]) -> None:
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise TrainError(
            f"{FILE}: {twice[0]}: expected each {what} once, got it {names.count(twice[0])} times",
            "remove or rename all but one",
        )
