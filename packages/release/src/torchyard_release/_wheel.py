"""What a built wheel itself says; never what the checkout says that it would say."""

from __future__ import annotations

import zipfile
from email.parser import BytesParser
from pathlib import Path

from packaging.requirements import Requirement

from torchyard_release._errors import ReleaseError


def requirements_of(wheel: Path) -> tuple[Requirement, ...]:
    """Return what a wheel requires on this machine, without its extras."""
    with zipfile.ZipFile(wheel) as archive:
        names = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        if len(names) != 1:
            raise ReleaseError(
                f"{wheel.name}: expected one METADATA, found {len(names)}",
                "run `torchyard release inspect`, and build this package again",
            )
        return requirements_of_text(archive.read(names[0]))


def requirements_of_text(metadata: bytes) -> tuple[Requirement, ...]:
    """Return what core metadata requires on this machine, without extras."""
    headers = BytesParser().parsebytes(metadata)
    found = map(Requirement, headers.get_all("Requires-Dist", []))
    return tuple(
        item for item in found if item.marker is None or item.marker.evaluate({"extra": ""})
    )
