"""Bundles: a report as one file that others can verify; equal reports have equal bytes."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from torchyard_conformance._evidence._archive import write_archive
from torchyard_conformance._evidence._signature import sign
from torchyard_conformance._profile import Profile, read_profile
from torchyard_conformance._reports._junit import junit
from torchyard_conformance._reports._result import Report

REPORT: Final = "report.json"
JUNIT: Final = "junit.xml"
LISTS: Final = "mustpass"
MANIFEST: Final = "MANIFEST.sha256"
SIGNATURE: Final = "MANIFEST.sha256.ed25519"


def write_bundle(report: Report, path: Path, *, key: Path | None = None) -> str:
    """Write a report as a bundle.

    Args:
        report: the report, certified or not.
        path: the file to write.
        key: a PEM file with the private Ed25519 key that signs it; None leaves it unsigned.

    Returns:
        sha256 of the file, in hexadecimal.

    Raises:
        ValueError: the report was made with other lists of laws than the kit has.
        KeyFileError: the key cannot be used.
        OSError: the file cannot be written.
    """
    data = bundle(report, key=key)
    path.write_bytes(data)
    return hashlib.sha256(data).hexdigest()


def bundle(report: Report, *, key: Path | None = None) -> bytes:
    """Return a report as a bundle; see :func:`write_bundle`."""
    profile = read_profile(report.profile, report.spec)
    if profile.digest != report.mustpass_digest:
        raise ValueError(
            f"report: expected the lists of profile {profile.name!r} that this kit has "
            f"({profile.digest}), got {report.mustpass_digest}; certify with this kit again"
        )
    members = derived(report, profile)
    manifest = manifest_of(members)
    signed = {} if key is None else {SIGNATURE: sign(manifest, key).encode()}
    return write_archive({**members, MANIFEST: manifest, **signed})


def derived(report: Report, profile: Profile) -> dict[str, bytes]:
    """Return the members that a report and its profile make, without what vouches for them."""
    return {
        REPORT: report_text(report).encode(),
        JUNIT: junit(report).encode(),
        **{f"{LISTS}/{name}": text.encode() for name, text in profile.lists},
    }


def report_text(report: Report) -> str:
    """Return the one JSON text of a report: ASCII, sorted, a line per value."""
    return json.dumps(report.to_json(), indent=1, sort_keys=True) + "\n"


def manifest_of(members: Mapping[str, bytes]) -> bytes:
    """Return what ``sha256sum --check`` reads: a digest and a name per member, sorted."""
    lines = [f"{hashlib.sha256(data).hexdigest()}  {name}\n" for name, data in members.items()]
    return "".join(sorted(lines, key=lambda line: line.split()[1])).encode()
