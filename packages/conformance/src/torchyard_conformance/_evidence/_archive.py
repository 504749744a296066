"""The format of a bundle: a gzipped tar with one canonical form for given members.

Any tar program unpacks it. Reading is strict: an archive that this module would not have written is
refused, so that no byte can change unnoticed, and nothing is written to a disk.
"""

from __future__ import annotations

import hashlib
import tarfile
import zlib
from collections.abc import Mapping
from typing import Final

from torchyard.evidence import raised_as
from torchyard.evidence.archives import Limits, decompress_gzip, read_tar

FOLDER: Final = "certificate"
# Bounds on a file that somebody else wrote: as it is, and unpacked.
PACKED_LIMIT: Final = 16 << 20
UNPACKED_LIMIT: Final = 64 << 20

_BLOCK: Final = 512
# gzip's magic, deflate, "a comment follows", no time, best compression, no system.
_HEAD: Final = b"\x1f\x8b\x08\x10\x00\x00\x00\x00\x02\xff"
_MARK: Final = b"sha256:"
_DIGEST_LENGTH: Final = 64


class BundleError(ValueError):
    """A bundle is refused: it is not as the kit wrote it, or claims what it does not hold."""


def write_archive(members: Mapping[str, bytes]) -> bytes:
    """Return the one archive of some members: by name, without times, owners or a place.

    The gzip's comment holds the sha256 of everything behind it, because compressed data has bits
    that say nothing and could change unseen.
    """
    compressor = zlib.compressobj(9, zlib.DEFLATED, -zlib.MAX_WBITS)
    plain = _tar(members)
    body = compressor.compress(plain) + compressor.flush()
    body += zlib.crc32(plain).to_bytes(4, "little") + len(plain).to_bytes(4, "little")
    return _HEAD + _MARK + hashlib.sha256(body).hexdigest().encode() + b"\0" + body


def read_archive(data: bytes) -> dict[str, bytes]:
    """Return an archive's members by name.

    Raises:
        BundleError: it is too large, truncated, changed, or not the one archive of its members.
    """
    with raised_as(BundleError):
        plain = _unpacked(data)
        found = read_tar(plain, Limits(UNPACKED_LIMIT))
    members = {_inside(path): member.content for path, member in found.items()}
    if _tar(members) != plain:
        raise BundleError(
            "archive: expected its members alone, sorted by name, each once, and of each no time, "
            "owner or mode of its own"
        )
    return members


def _tar(members: Mapping[str, bytes]) -> bytes:
    parts = []
    for name, content in sorted(members.items()):
        parts += [_header(name, len(content)), content, bytes(-len(content) % _BLOCK)]
    return b"".join([*parts, bytes(2 * _BLOCK)])


def _header(name: str, size: int) -> bytes:
    info = tarfile.TarInfo(f"{FOLDER}/{name}")
    info.size = size
    return info.tobuf(tarfile.USTAR_FORMAT)


def _unpacked(data: bytes) -> bytes:
    if len(data) > PACKED_LIMIT:
        raise BundleError(f"size: expected at most {PACKED_LIMIT} bytes, got {len(data)}")
    start = len(_HEAD) + len(_MARK) + _DIGEST_LENGTH + 1
    if data[: len(_HEAD)] != _HEAD or data[len(_HEAD) : len(_HEAD) + len(_MARK)] != _MARK:
        raise BundleError("head: expected a bundle of `torchyard certify --bundle`, got other data")
    said, body = data[len(_HEAD) + len(_MARK) : start], data[start:]
    found = hashlib.sha256(body).hexdigest().encode() + b"\0"
    if said != found:
        raise BundleError(
            "digest: the bundle was changed or is truncated: its first line and its content differ"
        )
    return decompress_gzip(data, UNPACKED_LIMIT)


def _inside(path: str) -> str:
    folder, _, name = path.partition("/")
    if folder != FOLDER or not name:
        raise BundleError(f"member {path!r}: expected a path inside {FOLDER!r}")
    return name
