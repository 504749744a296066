"""The form of a bundle: a tar in a gzip, with one way only to write given members.

Any tar program unpacks it. Reading is strict: what this file would not have written itself is
refused, so that no byte can change unseen, and nothing is written to a disk.
"""

from __future__ import annotations

import hashlib
import tarfile
import zlib
from collections.abc import Mapping
from typing import Final

FOLDER: Final = "certificate"
# Bounds on a file that somebody else wrote: as it is, and unpacked.
PACKED_LIMIT: Final = 16 << 20
UNPACKED_LIMIT: Final = 64 << 20

_BLOCK: Final = 512
# gzip's magic, deflate, "a comment follows", no time, best compression, no system.
_HEAD: Final = b"\x1f\x8b\x08\x10\x00\x00\x00\x00\x02\xff"
_MARK: Final = b"sha256:"
_DIGEST_LENGTH: Final = 64
_KINDS: Final = {b"1": "a link", b"2": "a link", b"5": "a folder", b"L": "a long name"}


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
    plain = _unpacked(data)
    members = _members(plain)
    if _tar(members) != plain:
        raise BundleError("archive: expected its members alone, sorted by name, each once")
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
    decompressor = zlib.decompressobj(zlib.MAX_WBITS | 16)
    try:
        # One byte more than is allowed shows that there is more, without unpacking it.
        plain = decompressor.decompress(data, UNPACKED_LIMIT + 1)
    except zlib.error as error:
        raise BundleError(f"compression: cannot be undone: {error}") from error
    if len(plain) > UNPACKED_LIMIT:
        raise BundleError(f"size: expected at most {UNPACKED_LIMIT} bytes unpacked, got more")
    if not decompressor.eof or decompressor.unused_data:
        raise BundleError("compression: expected one gzip stream and nothing else")
    return plain


def _members(plain: bytes) -> dict[str, bytes]:
    members: dict[str, bytes] = {}
    place = 0
    while (header := plain[place : place + _BLOCK]).strip(b"\0"):
        name, size = _entry(header)
        place += _BLOCK
        if place + size > len(plain):
            raise BundleError(f"member {name!r}: expected {size} bytes, the archive ends before")
        if name in members:
            raise BundleError(f"member {name!r}: expected once, got it again")
        members[name] = plain[place : place + size]
        place += size + -size % _BLOCK
    return members


def _entry(header: bytes) -> tuple[str, int]:
    """Return a member's name and size; its header must be what we would write for the two."""
    path = header[:100].rstrip(b"\0").decode("utf-8", "backslashreplace")
    kind = _KINDS.get(header[156:157], "something else") if header[156:157] != b"0" else ""
    if kind:
        raise BundleError(f"member {path!r}: expected a file, got {kind}")
    folder, _, name = path.partition("/")
    parts = name.split("/")
    if folder != FOLDER or not name or "\\" in name or {"", ".", ".."} & set(parts):
        raise BundleError(f"member {path!r}: expected a path inside {FOLDER!r}, without '..'")
    try:
        size = int(header[124:136].rstrip(b"\0 "), 8)
        expected = _header(name, size)
    except ValueError:
        expected = b""
    if header != expected:
        raise BundleError(f"member {path!r}: expected a plain header: no time, no owner, no more")
    return name, size
