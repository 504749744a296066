"""The bill of materials of a candidate, in CycloneDX: its files, and what each package requires."""

from __future__ import annotations

import datetime
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from cyclonedx.model import HashAlgorithm, HashType, Property
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.output.json import JsonV1Dot6
from packageurl import PackageURL
from packaging.metadata import Metadata
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from torchyard_release._records._candidate import Candidate

_SPACE: Final = uuid.UUID("8a3f6f5c-3f0e-5a51-9a52-6d6f1f0c7f0a")


def make_sbom(name: str, candidate: Candidate, metadata: Mapping[str, Metadata], epoch: int) -> str:
    """Return the bill as one JSON text; the same candidate has the same bill every time.

    Args:
        name: of the project.
        candidate: whose bill it is.
        metadata: of each package, by its name.
        epoch: when its commit was made, in seconds.
    """
    project = _library(name, candidate.version)
    ours = {package: _package(package, candidate, found) for package, found in metadata.items()}
    others: dict[str, Component] = {}
    bom = Bom(serial_number=uuid.uuid5(_SPACE, candidate.digest))
    bom.metadata.component = project
    bom.metadata.timestamp = datetime.datetime.fromtimestamp(epoch, datetime.UTC)
    by_name = {canonicalize_name(package): component for package, component in ours.items()}
    for package, found in sorted(metadata.items()):
        required = []
        for requirement in found.requires_dist or []:
            key = canonicalize_name(requirement.name)
            required.append(by_name.get(key) or _other(others, requirement))
        bom.register_dependency(ours[package], required)
    bom.register_dependency(project, ours.values())
    for component in (*ours.values(), *others.values()):
        bom.components.add(component)
    return str(JsonV1Dot6(bom).output_as_string(indent=1)) + "\n"


def write_name(name: str, candidate: Candidate, folder: Path) -> Path:
    """Return where a candidate's bill is kept."""
    return folder / "sbom" / f"{name}-{candidate.version}.cdx.json"


def _library(name: str, version: str | None) -> Component:
    key = canonicalize_name(name)
    reference = f"{key}@{version}" if version else key
    return Component(name=name, version=version, type=ComponentType.LIBRARY, bom_ref=reference)


def _package(name: str, candidate: Candidate, metadata: Metadata) -> Component:
    version = str(metadata.version)
    key = canonicalize_name(name)
    component = Component(
        name=name,
        version=version,
        type=ComponentType.LIBRARY,
        bom_ref=f"pkg:pypi/{key}@{version}",
        purl=PackageURL("pypi", name=key, version=version),
        description=metadata.summary,
    )
    for artifact in candidate.artifacts:
        if artifact.package == name:
            digest = HashType(alg=HashAlgorithm.SHA_256, content=artifact.sha256)
            component.components.add(
                Component(
                    name=artifact.file,
                    type=ComponentType.FILE,
                    bom_ref=f"file:{artifact.file}",
                    hashes=[digest],
                    properties=[Property(name="size", value=str(artifact.size))],
                )
            )
    return component


def _other(others: dict[str, Component], requirement: Requirement) -> Component:
    """Return what is required from elsewhere: a range, since the installer chooses the version."""
    key = canonicalize_name(requirement.name)
    if key not in others:
        others[key] = Component(
            name=requirement.name,
            type=ComponentType.LIBRARY,
            bom_ref=f"pkg:pypi/{key}",
            purl=PackageURL("pypi", name=key),
        )
    ranges = {str(item.value) for item in others[key].properties}
    if str(requirement.specifier) not in ranges:
        others[key].properties.add(Property(name="requires", value=str(requirement.specifier)))
    return others[key]
