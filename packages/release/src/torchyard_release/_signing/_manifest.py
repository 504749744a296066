"""The release's manifest: every file's SHA-256 in one statement, signed by k of n people.

The statement has the form of an in-toto Statement v1, and its envelope is DSSE's, so that other
tools read both. Nothing here reads a clock or a network.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from torchyard.evidence import SignatureError, raised_as
from torchyard.evidence.documents import parse_json, structure
from torchyard.evidence.envelopes import Envelope
from torchyard.evidence.keys import PrivateKey, PublicKey
from torchyard_release._atomic import write_atomically
from torchyard_release._errors import ReleaseError
from torchyard_release._records._candidate import sha256

STATEMENT_TYPE: Final = "https://in-toto.io/Statement/v1"
# A name, not an address: nothing is looked up there.
PREDICATE_TYPE: Final = "urn:torchyard:release:v1"
PAYLOAD_TYPE: Final = "application/vnd.in-toto+json"


@dataclass(frozen=True, slots=True)
class Manifest:
    """What a release consists of.

    Attributes:
        project: the train's name: a manifest of one project says nothing about another.
        version: the version that is released.
        candidate: which candidate's bytes these are, such as ``rc2``.
        commit: what they were built from.
        files: file name -> sha256, in hexadecimal.
        evidence: evidence's file name -> sha256: what the signers had in front of them.
    """

    project: str
    version: str
    candidate: str
    commit: str
    files: Mapping[str, str]
    evidence: Mapping[str, str]

    def payload(self) -> bytes:
        """Return the one JSON text that is signed."""
        statement = {
            "_type": STATEMENT_TYPE,
            "subject": [
                {"name": name, "digest": {"sha256": digest}}
                for name, digest in sorted(self.files.items())
            ],
            "predicateType": PREDICATE_TYPE,
            "predicate": {
                "project": self.project,
                "version": self.version,
                "candidate": self.candidate,
                "commit": self.commit,
                "evidence": dict(sorted(self.evidence.items())),
            },
        }
        return _text(statement).encode()


def sign_manifest(path: Path, manifest: Manifest, key: PrivateKey) -> int:
    """Add a signature to a manifest's file, which is made where it is not there yet.

    Args:
        path: the envelope's file.
        manifest: what the signer agrees to. A file that says something else is not signed.
        key: whose signature; again by the same key changes nothing.

    Returns:
        how many signatures the file holds then.
    """
    envelope = Envelope(manifest.payload(), PAYLOAD_TYPE)
    if path.exists():
        found = _envelope(path.read_bytes(), path)
        if found.payload != envelope.payload:
            raise ReleaseError(
                f"{path}: expected the manifest of {manifest.version} {manifest.candidate} as its "
                "files and evidence are now, got another; signatures of one are none of the other",
                remedy=f"remove {path.name} and let everybody sign again",
            )
        envelope = found
    envelope.sign(key)
    write_atomically(path, envelope.to_bytes())
    return envelope.count


def read_manifest(
    path: Path, keys: Sequence[PublicKey], *, threshold: int, project: str = "", version: str = ""
) -> tuple[Manifest, tuple[PublicKey, ...]]:
    """Return a manifest that enough of the keys signed, and those keys.

    Args:
        path: the envelope's file.
        keys: whose signatures count.
        threshold: how many different ones of them are needed; at least 1.
        project: refuse another project's manifest; empty asks for none.
        version: refuse another version's, such as an old release's that is shown again.

    Raises:
        ReleaseError: it is refused: changed, signed by too few, or of something else.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ReleaseError(
            f"{path}: expected a signed manifest, cannot be read: {error.strerror}",
            remedy="`torchyard release approve` writes it; it is next to the release's files",
        ) from error
    envelope = _envelope(data, path)
    try:
        signed = envelope.require(keys, threshold)
    except SignatureError as error:
        raise ReleaseError(
            f"{path}: {error}",
            remedy="compare the keys with those that the project publishes; if they are right, "
            "the manifest was changed or too few people approved: do not use these files",
        ) from error
    manifest = _manifest(envelope.payload, path)
    for name, wanted, found in (
        ("project", project, manifest.project),
        ("version", version, manifest.version),
    ):
        if wanted and wanted != found:
            raise ReleaseError(
                f"{path}: {name}: expected {wanted!r}, got {found!r}: a manifest of something else",
                remedy=f"fetch the manifest of {wanted}; do not use these files with this one",
            )
    return manifest, signed


def check_files(manifest: Manifest, folder: Path, *, also: Sequence[str] = ()) -> tuple[str, ...]:
    """Return what is wrong with a folder: missing, changed and extra files, a line for each.

    Args:
        manifest: what must be there.
        folder: where; nothing else may be in it.
        also: names that may be there besides, such as the manifest's own.
    """
    present = {
        path.relative_to(folder).as_posix(): path
        for path in sorted(folder.rglob("*"))
        if path.is_file() or path.is_symlink()
    }
    wrong = []
    for name in sorted(manifest.files.keys() | present.keys()):
        if name not in present:
            wrong.append(f"missing: {name}")
        elif name not in manifest.files:
            if name not in also:
                wrong.append(f"extra: {name}: the manifest does not name it")
        elif (found := sha256(present[name])) != manifest.files[name]:
            wrong.append(f"changed: {name}: expected sha256 {manifest.files[name]}, got {found}")
    if not manifest.files:
        wrong.append("empty: the manifest names no file, and nothing proves nothing")
    return tuple(wrong)


@dataclass(frozen=True, slots=True)
class _Digest:
    sha256: str


@dataclass(frozen=True, slots=True)
class _Subject:
    name: str
    digest: _Digest


@dataclass(frozen=True, slots=True)
class _Predicate:
    project: str
    version: str
    candidate: str
    commit: str
    evidence: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class _Statement:
    subject: tuple[_Subject, ...]
    predicate: _Predicate


def _envelope(data: bytes, path: Path) -> Envelope:
    with raised_as(lambda text: _refused(path, text)):
        return Envelope.parse(data, payload_type=PAYLOAD_TYPE)


def _manifest(payload: bytes, path: Path) -> Manifest:
    with raised_as(lambda text: _refused(path, text)):
        # Its other fields are compared below, with the text.
        said = structure(
            parse_json(payload, "statement"), _Statement, "statement", ignore_unknown=True
        )
    manifest = Manifest(
        project=said.predicate.project,
        version=said.predicate.version,
        candidate=said.predicate.candidate,
        commit=said.predicate.commit,
        files={item.name: item.digest.sha256 for item in said.subject},
        evidence=said.predicate.evidence,
    )
    if manifest.payload() != payload:
        raise _refused(path, "its statement is not written as this tool writes it")
    return manifest


def _refused(path: Path, reason: str) -> ReleaseError:
    return ReleaseError(
        f"{path}: expected a signed manifest, refused: {reason}",
        remedy="fetch the manifest again; do not use the files that it came with",
    )


def _text(data: object) -> str:
    return json.dumps(data, indent=1, sort_keys=True) + "\n"
