"""``Bundle``: a signed manifest and the contents that it names, as one file.

A zip without compression: ``manifest.json``, an envelope (DSSE) with the manifest and its
signatures, and ``blobs/<sha256>`` for each content.
"""

from __future__ import annotations

import hashlib
import io
import json
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Final

from torchyard.evidence import EvidenceError, raised_as
from torchyard.evidence.archives import Limits, check_name, read_zip
from torchyard.evidence.documents import parse_json, structure
from torchyard.evidence.envelopes import Envelope
from torchyard.evidence.keys import PrivateKey, PublicKey
from torchyard_cache._errors import BundleError
from torchyard_cache.artifacts._manifest import Manifest
from torchyard_cache.artifacts._stores import MOST_BYTES

__all__ = ["Bundle", "check_key", "parse_bundle"]

_TYPE: Final = "application/vnd.torchyard.cache-bundle+json"
_MANIFEST: Final = "manifest.json"
_BLOBS: Final = "blobs/"
_LIMITS: Final = Limits(unpacked=MOST_BYTES, members=1 << 18)
# The time of every member: equal artifacts make equal files.
_EPOCH: Final = (1980, 1, 1, 0, 0, 0)


@dataclass(frozen=True, slots=True)
class Bundle:
    """A manifest with its contents, all digests of which were compared.

    Attributes:
        manifest: what the signature covers.
        contents: of each artifact, by its sha256.
        signer: the trusted key that signed it; None where none did.
    """

    manifest: Manifest
    contents: Mapping[str, bytes]
    signer: PublicKey | None = None

    def to_bytes(self, key: PrivateKey) -> bytes:
        """Return the file, signed."""
        payload = json.dumps(asdict(self.manifest), sort_keys=True).encode()
        envelope = Envelope(payload, _TYPE)
        envelope.sign(key)
        wanted = {item.sha256 for item in self.manifest.artifacts}
        return _packed(envelope, {digest: self.contents[digest] for digest in wanted})


def parse_bundle(data: bytes, keys: Sequence[PublicKey], *, unsigned: bool = False) -> Bundle:
    """Read a bundle; signature, digests, sizes and keys hold, or it is refused whole.

    Args:
        data: the file.
        keys: whose signature is trusted.
        unsigned: whether none of their signatures is needed.

    Raises:
        BundleError: says what does not hold.
    """
    with raised_as(BundleError):
        members = read_zip(data, _LIMITS, stored=True)
        if _MANIFEST not in members:
            raise BundleError(f"bundle: expected a member {_MANIFEST}, found none")
        envelope = Envelope.parse(members[_MANIFEST].content, payload_type=_TYPE)
        signers = envelope.signers(keys)
        if not signers and not unsigned:
            # Says how many signatures there are, of whomever.
            raise BundleError(
                f"bundle: none of its {envelope.count} signature(s) is by one of the {len(keys)} "
                f"key(s) that are trusted; name the key of whoever made it (keys=), or, of a maker "
                f"whom you trust with running code here, trust_unsigned=True"
            )
        manifest = structure(parse_json(envelope.payload, _MANIFEST), Manifest, _MANIFEST)
        manifest.check()
    contents = {
        name.removeprefix(_BLOBS): member.content
        for name, member in members.items()
        if name != _MANIFEST
    }
    _check_contents(manifest, contents)
    # No signature covers the zip around it.
    if _packed(envelope, contents) != data:
        raise BundleError(
            "bundle: its bytes are not the ones that this tool writes for its content"
        )
    return Bundle(manifest, contents, signers[0] if signers else None)


def _packed(envelope: Envelope, contents: Mapping[str, bytes]) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        _add(archive, _MANIFEST, envelope.to_bytes())
        for digest in sorted(contents):
            _add(archive, f"{_BLOBS}{digest}", contents[digest])
    return file.getvalue()


def _check_contents(manifest: Manifest, contents: Mapping[str, bytes]) -> None:
    wanted = {item.sha256 for item in manifest.artifacts}
    if wanted != contents.keys():
        missing, extra = sorted(wanted - contents.keys()), sorted(contents.keys() - wanted)
        raise BundleError(
            f"bundle: its contents are not those that the manifest names: {len(missing)} missing, "
            f"{len(extra)} besides: {(missing or extra)[0]!r:.100}"
        )
    for digest, content in contents.items():
        found = hashlib.sha256(content).hexdigest()
        if found != digest:
            raise BundleError(f"bundle: content {digest} has the digest {found}")
    for item in manifest.artifacts:
        if item.size != len(contents[item.sha256]):
            raise BundleError(
                f"bundle: {item.kind} {item.key}: expected {item.size} bytes, got "
                f"{len(contents[item.sha256])}"
            )
        check_key(item.kind, item.key)


def check_key(kind: str, key: str) -> None:
    """Refuse a key that could name a place outside of its kind's folder.

    Raises:
        BundleError: names kind and key.
    """
    # torch replaces what no file may be named by in keys of profiles, which name a job and a rank.
    name = key.replace(":", "_") if kind == "pgo" else key
    try:
        check_name(name)
    except EvidenceError as error:
        raise BundleError(f"bundle: {kind}: key {key!r:.200}: {error}") from error


def _add(archive: zipfile.ZipFile, name: str, content: bytes) -> None:
    archive.writestr(zipfile.ZipInfo(name, _EPOCH), content)
