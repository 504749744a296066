"""Compares an artifact's metadata with train.toml and with its pyproject.toml."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from packaging.metadata import InvalidMetadata, Metadata
from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import InvalidSpecifier, Specifier, SpecifierSet
from packaging.tags import parse_tag
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from torchyard_release._artifacts._findings import Fault, Finding
from torchyard_release._declaration._package import Package
from torchyard_release._declaration._train import Train

_PYTHON = "Programming Language :: Python :: "
_AGAIN = "fix its pyproject.toml on the branch and cut another candidate"


def parse_metadata(content: bytes) -> Metadata:
    """Return the core metadata in a METADATA or PKG-INFO file; ExceptionGroup where it is none."""
    return Metadata.from_email(content)


def judge_metadata(
    file: str, content: bytes, train: Train, package: Package, project: Mapping[str, Any]
) -> list[Finding]:
    """Compare an artifact's core metadata with its declaration.

    Args:
        file: the artifact's name.
        content: of METADATA or PKG-INFO.
        train: the declaration.
        package: of the artifact.
        project: the ``[project]`` table that it was built from.
    """
    try:
        metadata = parse_metadata(content)
    except (ExceptionGroup, InvalidMetadata) as error:
        faults = getattr(error, "exceptions", (error,))
        text = "; ".join(str(fault) for fault in faults)
        return [Finding(file, Fault.METADATA, text, _AGAIN)]
    judged = _Judged(file, metadata, train, package, project)
    return [
        *judged.identity(),
        *judged.python(),
        *judged.requirements(),
    ]


class _Judged:
    def __init__(
        self,
        file: str,
        metadata: Metadata,
        train: Train,
        package: Package,
        project: Mapping[str, Any],
    ) -> None:
        self._file = file
        self._metadata = metadata
        self._train = train
        self._package = package
        self._project = project

    def identity(self) -> Iterator[Finding]:
        """Name, version, description, license."""
        if canonicalize_name(self._metadata.name) != canonicalize_name(self._package.name):
            yield self._found(Fault.WRONG_NAME, self._package.name, self._metadata.name)
        version = self._train.version_of(self._package)
        if str(self._metadata.version) != version:
            yield self._found(Fault.VERSION_INSIDE, version, str(self._metadata.version))
        for key, value in (
            ("description", self._metadata.summary),
            ("license", self._metadata.license_expression),
        ):
            declared = self._project.get(key)
            if isinstance(declared, str) and value != declared:
                yield self._found(Fault.METADATA, f"{key} {declared!r}", repr(value))

    def python(self) -> Iterator[Finding]:
        """Requires-Python, the classifiers and the tag tell one story."""
        declared = SpecifierSet(self._train.requires_python)
        allowed = self._metadata.requires_python
        if allowed != declared:
            yield self._found(Fault.PYTHON, f"Requires-Python {declared}", str(allowed))
        claimed = {
            name.removeprefix(_PYTHON)
            for name in self._metadata.classifiers or []
            if name.startswith(f"{_PYTHON}3.")
        }
        for version in sorted(claimed - set(self._train.python)):
            yield self._found(
                Fault.CLASSIFIERS,
                f"classifiers of {', '.join(self._train.python)} at most",
                f"Python {version}",
            )
        if self._file.endswith(".whl"):
            yield from self._tag()

    def _tag(self) -> Iterator[Finding]:
        """A wheel must fit the oldest Python that its metadata lets in."""
        oldest = Version(self._train.python[0])
        tags = parse_tag("-".join(self._file.removesuffix(".whl").rsplit("-", 3)[1:]))
        fits = False
        for tag in tags:
            number = tag.interpreter.lstrip("abcdefghijklmnopqrstuvwxyz")
            major, minor = number[:1], number[1:]
            least = Version(f"{major}.{minor or 0}")
            exact = not minor or tag.abi in {"abi3", "none"}
            fits |= least <= oldest if exact else least == oldest
        if not fits:
            found = ", ".join(sorted(map(str, tags)))
            yield self._found(Fault.TAG_PYTHON, f"a tag that fits Python {oldest}", found)

    def requirements(self) -> Iterator[Finding]:
        """Every requirement that was declared, pins of siblings and torch first; none that rots."""
        found = self._metadata.requires_dist or []
        plain = {canonicalize_name(line.name): line for line in found if not _extra(line)}
        for sibling in self._package.requires:
            pin = SpecifierSet(self._train.pin_of(self._train.package(sibling)))
            line = plain.get(canonicalize_name(sibling))
            if line is None or line.specifier != pin:
                yield self._found(Fault.SIBLING_PIN, f"{sibling}{pin}", str(line or "nothing"))
        if self._package.torch:
            line = plain.get(canonicalize_name("torch"))
            if line is None or line.specifier != SpecifierSet(self._package.torch):
                expected = f"torch{self._package.torch}"
                yield self._found(Fault.TORCH_PIN, expected, str(line or "nothing"))
        written = {_normal(line) for line in found}
        declared = set(_declared(self._project))
        if "dependencies" in self._project.get("dynamic", []):
            declared |= written
        for text in sorted(declared - written):
            yield self._found(Fault.REQUIREMENTS, f"`{text}`, as pyproject.toml has it", "nothing")
        for text in sorted(written - declared):
            yield self._found(Fault.REQUIREMENTS, "what pyproject.toml has", f"`{text}`")
        for line in found:
            if line.url:
                yield self._found(Fault.DIRECT, "a requirement by version", str(line))
            if any(_prerelease(specifier) for specifier in line.specifier):
                yield self._found(Fault.PRERELEASE, "a requirement of a release", str(line))

    def _found(self, fault: Fault, expected: str, got: str) -> Finding:
        return Finding(self._file, fault, f"expected {expected}, got {got}", _AGAIN)


def _prerelease(specifier: Specifier) -> bool:
    try:
        return Version(specifier.version.removesuffix(".*")).is_prerelease
    except InvalidVersion:
        return False


def _extra(requirement: Requirement) -> bool:
    return requirement.marker is not None and "extra" in str(requirement.marker)


def _normal(requirement: Requirement) -> str:
    """Return a requirement in the one form in which two can be compared."""
    extras = ",".join(sorted(canonicalize_name(extra) for extra in requirement.extras))
    marker = str(requirement.marker or "")
    url = f" @ {requirement.url}" if requirement.url else ""
    specifier = ",".join(sorted(map(str, requirement.specifier)))
    return f"{canonicalize_name(requirement.name)}[{extras}]{specifier}{url};{marker}"


def _declared(project: Mapping[str, Any]) -> Iterator[str]:
    """Yield the requirements of a ``[project]`` table as metadata has them."""
    for line in project.get("dependencies", []):
        yield _normal(_requirement(line))
    for extra, lines in project.get("optional-dependencies", {}).items():
        for line in lines:
            requirement = _requirement(line)
            marker = f'extra == "{canonicalize_name(extra)}"'
            if requirement.marker is not None:
                text = str(requirement.marker)
                # As builders do: what is joined by `or` is kept together.
                marker = f"({text}) and {marker}" if " or " in text else f"{text} and {marker}"
            requirement.marker = Requirement(f"x; {marker}").marker
            yield _normal(requirement)


def _requirement(line: str) -> Requirement:
    try:
        return Requirement(line)
    except (InvalidRequirement, InvalidSpecifier) as error:
        raise ValueError(f"{line}: {error}") from None
