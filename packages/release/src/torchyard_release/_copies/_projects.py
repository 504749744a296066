"""Copies in the packages: versions, pins of siblings and torch, version files."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Final

import tomlkit
from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

from torchyard_release._copies._drift import Derived, Drift
from torchyard_release._declaration._package import Package
from torchyard_release._declaration._train import Train
from torchyard_release._errors import WorkspaceError

_VERSION: Final = re.compile(r"""(?m)^(__version__(?:: [\w.\[\]]+)? = ["'])([^"']*)(["'])""")


class _Project:
    """One pyproject.toml, compared and rewritten with its form kept."""

    def __init__(self, root: Path, train: Train, package: Package) -> None:
        self._train = train
        self._package = package
        self._path = str(package.folder / "pyproject.toml")
        self._text = (root / self._path).read_text(encoding="utf-8")
        try:
            self._document = tomlkit.parse(self._text)
        except tomlkit.exceptions.ParseError as error:
            raise WorkspaceError(
                f"{self._path}: expected TOML, got: {error}", "correct it"
            ) from None
        self._drifts: list[Drift] = []
        self._seen = 0

    def derive(self) -> Derived:
        project: Any = self._document.get("project")
        if project is None:
            raise WorkspaceError(f"{self._path}: it has no [project] table", "write one")
        if project.get("name") != self._package.name:
            self._differs(
                "name", repr(project.get("name")), self._package.name, "rename one of them"
            )
        if "version" not in project.get("dynamic", []):
            self._key(project, "version", self._train.version_of(self._package))
        elif not self._package.version_files:
            declared = "a file that its builder reads"
            self._differs("version", "dynamic", declared, "list that file in `version_files`")
        self._key(project, "requires-python", self._train.requires_python)
        required = self._lines(project.get("dependencies", []), "dependencies")
        for lines in project.get("optional-dependencies", {}).values():
            self._lines(lines, "optional-dependencies")
        self._siblings(required)
        if self._package.torch and "torch" not in required:
            self._differs("dependencies", "no torch", f"torch{self._package.torch}", "add it")
        self._built_with()
        text = tomlkit.dumps(self._document)
        texts = {self._path: text} if text != self._text else {}
        return Derived(tuple(self._drifts), texts, self._seen)

    def _key(self, table: Any, key: str, declared: str) -> None:
        self._seen += 1
        found = table.get(key)
        if found != declared:
            self._differs(key, repr(found) if found else "nothing", declared)
            table[key] = declared

    def _lines(self, lines: Any, what: str) -> list[str]:
        """Compare requirements, and return the names of what they require."""
        names: list[str] = []
        siblings = {canonicalize_name(other.name): other for other in self._train.packages}
        for number, line in enumerate(list(lines)):
            try:
                requirement = Requirement(line)
            except InvalidRequirement as error:
                self._differs(what, f"{line!r}: {error}", "a requirement", "correct it")
                continue
            name = canonicalize_name(requirement.name)
            names.append(name)
            if name in siblings:
                declared = self._train.pin_of(siblings[name])
            elif name == "torch" and not self._package.torch:
                self._differs(what, line, "no torch", "give the package its `torch` in train.toml")
                continue
            elif name == "torch":
                declared = self._package.torch
            else:
                continue
            self._seen += 1
            if requirement.specifier != SpecifierSet(declared):
                extras = f"[{','.join(sorted(requirement.extras))}]" if requirement.extras else ""
                marker = f"; {requirement.marker}" if requirement.marker else ""
                written = f"{requirement.name}{extras}{declared}{marker}"
                self._differs(what, line, written)
                lines[number] = written
        return names

    def _siblings(self, required: list[str]) -> None:
        self._seen += 1
        siblings = {canonicalize_name(other.name) for other in self._train.packages}
        found = sorted(siblings.intersection(required))
        declared = sorted(canonicalize_name(name) for name in self._package.requires)
        if found != declared:
            self._differs(
                "siblings that it requires",
                ", ".join(found) or "none",
                ", ".join(declared) or "none",
                "correct `dependencies` here, or `requires` in train.toml",
            )

    def _built_with(self) -> None:
        """A torch that it is compiled against must be one that users may have."""
        for line in self._document.get("build-system", {}).get("requires", []):
            requirement = Requirement(line)
            if canonicalize_name(requirement.name) != "torch":
                continue
            self._seen += 1
            for exact in requirement.specifier:
                if exact.operator == "==" and exact.version not in SpecifierSet(
                    self._package.torch
                ):
                    self._differs(
                        "build-system.requires", line, f"torch{self._package.torch}", "correct one"
                    )

    def _differs(self, what: str, found: str, declared: str, remedy: str = "") -> None:
        self._drifts.append(Drift(self._path, what, found, declared, remedy))


def derive_projects(root: Path, train: Train) -> Derived:
    """Compare every package's pyproject.toml and version files with the declaration."""
    parts = []
    for package in train.packages:
        parts += [_Project(root, train, package).derive(), _version_files(root, train, package)]
    return Derived(
        tuple(drift for part in parts for drift in part.drifts),
        {path: text for part in parts for path, text in part.texts.items()},
        sum(part.seen for part in parts),
    )


def _version_files(root: Path, train: Train, package: Package) -> Derived:
    declared = train.version_of(package)
    drifts: list[Drift] = []
    texts = {}
    for name in package.version_files:
        path = str(package.folder / name)
        text = (root / path).read_text(encoding="utf-8") if (root / path).is_file() else ""
        found = [match[2] for match in _VERSION.finditer(text)]
        if len(found) != 1:
            said = f"{len(found)} lines `__version__ = ...`"
            drifts.append(Drift(path, "__version__", said, declared, "write the one line"))
        elif found != [declared]:
            drifts.append(Drift(path, "__version__", found[0], declared))
            texts[path] = _VERSION.sub(rf"\g<1>{declared}\g<3>", text)
    sources = root / package.folder / "src"
    if not sources.is_dir():
        sources = root / package.folder / package.module
    for file in sorted(sources.rglob("*.py")):
        path = file.relative_to(root).as_posix()
        listed = {str(package.folder / name) for name in package.version_files}
        if path not in listed and _VERSION.search(file.read_text(encoding="utf-8")):
            drifts.append(
                Drift(path, "__version__", "a version", "none", "list it in `version_files`")
            )
    return Derived(tuple(drifts), texts, len(package.version_files))
