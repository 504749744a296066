"""Metadata of a built wheel, read from the wheel and never from the checkout."""

from __future__ import annotations

from email.parser import BytesParser
from pathlib import Path

from packaging.requirements import Requirement
from packaging.tags import sys_tags
from packaging.utils import parse_wheel_filename

from torchyard_release._artifacts._members import metadata_of
from torchyard_release._errors import ReleaseError


def fits_here(file: str) -> bool:
    """Whether a wheel of that name can be installed on this machine, by this Python."""
    return not parse_wheel_filename(file)[3].isdisjoint(sys_tags())


def requirements_of(wheel: Path) -> tuple[Requirement, ...]:
    """Return what a wheel requires on this machine, without its extras."""
    found = metadata_of(wheel)
    if len(found) != 1:
        raise ReleaseError(
            f"{wheel.name}: expected one METADATA, found {len(found)}",
            "run `torchyard release inspect`, and build this package again",
        )
    return requirements_of_text(found[0])


def requirements_of_text(metadata: bytes) -> tuple[Requirement, ...]:
    """Return what core metadata requires on this machine, without extras."""
    headers = BytesParser().parsebytes(metadata)
    found = map(Requirement, headers.get_all("Requires-Dist", []))
    return tuple(
        item for item in found if item.marker is None or item.marker.evaluate({"extra": ""})
    )
