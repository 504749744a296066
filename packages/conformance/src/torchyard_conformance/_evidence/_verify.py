"""Verification: whether the kit wrote a bundle, and whether it certifies the plugin."""

from __future__ import annotations

import datetime
import hashlib
import re
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final

from torchyard.evidence import MissingLibraryError, raised_as
from torchyard.evidence.documents import parse_json
from torchyard.evidence.files import read_file
from torchyard.evidence.keys import read_public_key
from torchyard_conformance._evidence._archive import PACKED_LIMIT, BundleError, read_archive
from torchyard_conformance._evidence._bundle import (
    MANIFEST,
    REPORT,
    SIGNATURE,
    derived,
    manifest_of,
)
from torchyard_conformance._evidence._signature import signer
from torchyard_conformance._profile import Profile, ProfileError, read_profile
from torchyard_conformance._reports._result import Report

_SPEC: Final = re.compile(r"[0-9]{1,4}\.[0-9]{1,4}")


class Authorship(StrEnum):
    """What a bundle proves about who made it."""

    UNSIGNED = "not proven: the bundle is not signed, and anybody can write such a bundle"
    UNKNOWN_KEY = "not proven: signed by a key that you did not name; --key PUB names the author's"
    UNCHECKED = "not proven: signed, but nothing here can check a signature"
    PROVEN = "proven: signed by the key that you named"


@dataclass(frozen=True, slots=True)
class Verified:
    """A bundle that was not refused. Whether it certifies anything, its report says.

    Attributes:
        report: what it holds.
        digest: sha256 of the file, in hexadecimal.
        authorship: what is known of who made it.
        key: the public key that signed it, in hexadecimal; empty where none did.
    """

    report: Report
    digest: str
    authorship: Authorship
    key: str = ""

    @property
    def author_proven(self) -> bool:
        """Whether the key that was asked for signed it."""
        return self.authorship is Authorship.PROVEN


def read_bundle(path: Path, *, key: Path | None = None) -> Verified:
    """Check a bundle in a file; see :func:`verify`. OSError where the file cannot be read."""
    with raised_as(BundleError):
        data = read_file(path, PACKED_LIMIT)
    return verify(data, key=key)


def verify(data: bytes, *, key: Path | None = None) -> Verified:
    """Check a bundle: its bytes, its members, their agreement, the lists that it was judged by.

    Everything that follows from something else in it is derived again and compared. Nothing is
    unpickled, and nothing is written to a disk.

    Args:
        data: the file's content.
        key: a PEM file with the author's public Ed25519 key; None asks for no author.

    Raises:
        BundleError: what was expected, and what came.
        KeyFileError: the key cannot be read.
    """
    members = read_archive(data)
    signature = members.pop(SIGNATURE, None)
    manifest = members.pop(MANIFEST, b"")
    _check_manifest(members, manifest)
    report = _report(members)
    _check_members(members, report, _profile(report))
    authorship, public = _authorship(signature, manifest, key)
    return Verified(report, hashlib.sha256(data).hexdigest(), authorship, public)


def _check_manifest(members: dict[str, bytes], manifest: bytes) -> None:
    if not manifest:
        raise BundleError(f"member {MANIFEST!r}: expected, not there")
    lines = [line.partition("  ") for line in manifest.decode("utf-8", "replace").splitlines()]
    said = {name: digest for digest, _, name in lines}
    for name in sorted(members.keys() | said.keys()):
        if name not in members:
            raise BundleError(f"member {name!r}: expected by {MANIFEST}, not there")
        if name not in said:
            raise BundleError(f"member {name!r}: {MANIFEST} does not name it")
        found = hashlib.sha256(members[name]).hexdigest()
        if said[name] != found:
            raise BundleError(
                f"member {name!r}: expected sha256 {said[name]}, which {MANIFEST} says, got {found}"
            )
    if manifest != manifest_of(members):
        raise BundleError(f"member {MANIFEST!r}: expected a line per member, sorted, and no more")


def _report(members: dict[str, bytes]) -> Report:
    if REPORT not in members:
        raise BundleError(f"{REPORT}: expected, not there")
    with raised_as(lambda text: BundleError(f"{REPORT}: {text.removeprefix(f'{REPORT}: ')}")):
        data = parse_json(members[REPORT], REPORT)
        report = Report.from_json(data)
    try:
        datetime.date.fromisoformat(report.date)
        concluded = report.to_json()
    except (TypeError, ValueError) as error:
        raise BundleError(f"{REPORT}: expected the kit's report, got: {error}") from error
    if data.get("certified") != concluded["certified"]:
        raise BundleError(
            f"{REPORT}: says certified = {data.get('certified')}, but its results say "
            f"{concluded['certified']}: {'; '.join(report.reasons) or 'nothing is against it'}"
        )
    return report


def _profile(report: Report) -> Profile:
    spec = report.spec
    if not _SPEC.fullmatch(spec):
        raise BundleError(f"spec: expected a version such as '1.0', got {spec!r}")
    try:
        profile = read_profile(report.profile, spec)
    except ProfileError as error:
        raise BundleError(
            f"spec {spec}, profile {report.profile!r}: this kit does not know them: {error}; "
            f"verify with torchyard-conformance {report.kit_version}"
        ) from error
    if report.mustpass_digest != profile.digest:
        raise BundleError(
            f"mustpass_digest: expected {profile.digest}, the digest of this kit's lists of spec "
            f"{spec}, got {report.mustpass_digest}"
        )
    if report.mustpass != (needed := profile.mustpass(report.contracts)):
        odd = sorted(set(report.mustpass) ^ set(needed)) or ["their order"]
        raise BundleError(
            f"mustpass: expected the laws that spec {spec} asks of {', '.join(report.contracts)}; "
            f"what differs: {', '.join(odd)}"
        )
    return profile


def _check_members(members: dict[str, bytes], report: Report, profile: Profile) -> None:
    try:
        expected = derived(report, profile)
    # Numbers that are too long to be written, and halves of characters.
    except ValueError as error:
        raise BundleError(f"{REPORT}: expected the kit's report, got: {error}") from error
    if odd := sorted(members.keys() ^ expected.keys()):
        raise BundleError(f"members: expected {', '.join(sorted(expected))}; odd: {', '.join(odd)}")
    for name, content in expected.items():
        if members[name] != content:
            raise BundleError(
                f"member {name!r}: expected what the report and the kit's lists make of it, got "
                f"other content"
            )


def _authorship(
    signature: bytes | None, manifest: bytes, key: Path | None
) -> tuple[Authorship, str]:
    wanted = None if key is None else read_public_key(key).hex
    if signature is None:
        if wanted is not None:
            raise BundleError(f"signature: expected one of {key}, the bundle is not signed")
        return Authorship.UNSIGNED, ""
    try:
        found = signer(signature.decode("utf-8", "replace"), manifest)
    except MissingLibraryError:
        return Authorship.UNCHECKED, ""
    if wanted is None:
        return Authorship.UNKNOWN_KEY, found
    if found != wanted:
        raise BundleError(f"signature: expected one of {key} ({wanted}), got one of {found}")
    return Authorship.PROVEN, found
