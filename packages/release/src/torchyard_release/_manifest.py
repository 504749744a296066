"""The release's manifest: every file's sha256 in one statement, signed by k of n people.

The statement has the form of an in-toto Statement v1, and its envelope is DSSE's, so that other
tools read both. Nothing here reads a clock or a network.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from securesystemslib.dsse import Envelope
from securesystemslib.exceptions import VerificationError
from securesystemslib.signer import Key

from torchyard_release._atomic import write_atomically
from torchyard_release._candidate import sha256
from torchyard_release._errors import ReleaseError
from torchyard_release._keys import Signatory

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


def sign_manifest(path: Path, manifest: Manifest, signer: Signatory) -> int:
    """Add a signature to a manifest's file, which is made where it is not there yet.

    Args:
        path: the envelope's file.
        manifest: what the signer agrees to. A file that says something else is not signed.
        signer: who signs; again by the same key changes nothing.

    Returns:
        how many signatures the file holds then.
    """
    envelope = Envelope(manifest.payload(), PAYLOAD_TYPE, {})
    if path.exists():
        found = _envelope(path.read_bytes(), path)
        if found.payload != envelope.payload:
            raise ReleaseError(
                f"{path}: expected the manifest of {manifest.version} {manifest.candidate} as its "
                "files and evidence are now, got another; signatures of one are none of the other",
                remedy=f"remove {path.name} and let everybody sign again",
            )
        envelope = found
    envelope.sign(signer.signer)
    write_atomically(path, _text(envelope.to_dict()).encode())
    return len(envelope.signatures)


def read_manifest(
    path: Path, keys: Sequence[Key], *, threshold: int, project: str = "", version: str = ""
) -> tuple[Manifest, tuple[str, ...]]:
    """Return a manifest that enough of the keys signed, and the ids of the keys that did.

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
            remedy="`torchyard release approve` writes it; it lies beside the release's files",
        ) from error
    envelope = _envelope(data, path)
    try:
        envelope.verify(list(keys), threshold)
        # The library stops at the threshold; who else signed is told too.
        signed = [key.keyid for key in keys if _signed(envelope, key)]
    except (VerificationError, ValueError) as error:
        raise ReleaseError(
            f"{path}: expected {threshold} valid signature(s) of the {len(keys)} known key(s), "
            f"found {sum(_signed(envelope, key) for key in keys)}: {error}",
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
    return manifest, tuple(signed)


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


def _signed(envelope: Envelope, key: Key) -> bool:
    try:
        envelope.verify([key], 1)
    except VerificationError:
        return False
    return True


def _envelope(data: bytes, path: Path) -> Envelope:
    try:
        envelope = Envelope.from_dict(json.loads(data))
        again = _text(envelope.to_dict()).encode()
    # Whatever a file from outside makes the parser raise, it is not an envelope.
    except Exception as error:
        raise _refused(path, f"it cannot be read: {type(error).__name__}: {error}") from error
    # Blanks, other spellings of base64, keys that nobody reads: one text only for one meaning.
    if again != data:
        raise _refused(path, "its bytes are not the ones that this tool writes for its content")
    if envelope.payload_type != PAYLOAD_TYPE:
        raise _refused(path, f"its payload is of type {envelope.payload_type!r}")
    return envelope


def _manifest(payload: bytes, path: Path) -> Manifest:
    try:
        data: Any = json.loads(payload)
        said = data["predicate"]
        manifest = Manifest(
            project=said["project"],
            version=said["version"],
            candidate=said["candidate"],
            commit=said["commit"],
            files={item["name"]: item["digest"]["sha256"] for item in data["subject"]},
            evidence=said["evidence"],
        )
    except (KeyError, TypeError, ValueError) as error:
        raise _refused(path, f"its statement cannot be read: {error!r}") from error
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
