"""Members of zip and tar files that somebody else wrote: read in memory, within bounds.

Nothing is unpacked to a disk, so there is no folder to escape from. Names are checked all the same,
since whoever receives them may write files by them.
"""

from __future__ import annotations

import io
import re
import stat
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from torchyard.evidence._errors import ArchiveError

__all__ = ["Limits", "Member", "check_name", "decompress_gzip", "read_tar", "read_zip"]

_CHUNK: Final = 1 << 20
_LONGEST_NAME: Final = 4096
# Control characters, and the halves of characters that stand for bytes which are no text.
_UNPRINTABLE: Final = re.compile(r"[\x00-\x1f\x7f\ud800-\udfff]")
# What the two modules raise on damage, by its place.
_DAMAGE: Final = (
    tarfile.TarError,
    zipfile.BadZipFile,
    zlib.error,
    struct.error,
    EOFError,
    LookupError,
    NotImplementedError,
    OSError,
    OverflowError,
    RuntimeError,
    ValueError,
)


@dataclass(frozen=True, slots=True)
class Limits:
    """How much an archive may hold.

    Attributes:
        unpacked: bytes of all members together.
        members: how many there may be.
    """

    unpacked: int = 1 << 30
    members: int = 1 << 16


@dataclass(frozen=True, slots=True)
class Member:
    """A file in an archive.

    Attributes:
        content: its bytes.
        facts: what the archive says of it besides: time, mode, and what else its kind has.
    """

    content: bytes
    facts: Mapping[str, str]


def check_name(name: str) -> None:
    """Refuse a name that is no plain relative path, on any system that might write it.

    Raises:
        ArchiveError: it is absolute, has a part ``..`` or an empty one, a drive, a backslash, or
            a character that cannot be printed.
    """
    parts = name.split("/")
    if (
        {"", ".", ".."} & set(parts)
        or len(name) > _LONGEST_NAME
        or "\\" in name
        or ":" in parts[0]
        or _UNPRINTABLE.search(name)
    ):
        raise ArchiveError(
            f"member {name!r:.200}: expected a relative path without '..', empty parts, "
            "backslashes, drives and control characters"
        )


def read_zip(
    data: bytes,
    limits: Limits,
    *,
    stored: bool = False,
    folders: bool = False,
    wanted: Callable[[str], object] | None = None,
) -> dict[str, Member]:
    """Return the members of a zip by name, in its order.

    Args:
        data: the file's bytes.
        limits: what it may hold.
        stored: refuse compressed members.
        folders: leave entries of folders out instead of refusing them.
        wanted: which names to read; the others are checked and left out. None reads all.

    Raises:
        ArchiveError: it is damaged or larger than the limits; a member is a link, a device,
            encrypted, of another compression, twice there, or inside another member; its name is no
            plain relative path.
    """
    found = {}
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            entries = archive.infolist()
            _check_names([entry.filename for entry in entries], limits)
            for entry in entries:
                _check_zip_entry(entry, stored, folders)
            files = [entry for entry in entries if not entry.is_dir()]
            _check_inside(entry.filename for entry in files)
            # Before a byte is read. Of stored members that overlap, the sizes betray it.
            _check_size(
                sum(entry.file_size for entry in files),
                min(limits.unpacked, len(data)) if stored else limits.unpacked,
            )
            for entry in files:
                if wanted is None or wanted(entry.filename):
                    found[entry.filename] = _zip_member(archive, entry)
    except ArchiveError:
        raise
    except _DAMAGE as error:
        raise ArchiveError(f"archive: expected a zip, got a damaged one: {error}") from error
    return found


def read_tar(data: bytes, limits: Limits, *, folders: bool = False) -> dict[str, Member]:
    """Return the members of a tar, or of one in a gzip, by name, in its order.

    Args:
        data: the file's bytes.
        limits: what it may hold.
        folders: leave entries of folders out instead of refusing them.

    Raises:
        ArchiveError: it is damaged, larger than the limits, or goes on after its end; a member is a
            link, a device, a sparse file, twice there, or inside another member; its name is no
            plain relative path.
    """
    if data[:2] == b"\x1f\x8b":
        # Room for the headers too: a block each, and some more for long names.
        data = decompress_gzip(data, limits.unpacked + limits.members * 4096)
    found: dict[str, Member] = {}
    seen: list[str] = []
    size = 0
    try:
        with tarfile.open(fileobj=io.BytesIO(data), mode="r:", encoding="utf-8") as archive:
            while (item := archive.next()) is not None:
                name = _tar_name(item, folders)
                seen.append(name)
                size += item.size
                _check_size(size, limits.unpacked)
                if len(seen) > limits.members:
                    raise _too_many(limits)
                if item.isreg():
                    found[name] = _tar_member(archive, item, data)
            rest = data[archive.offset :]
    except ArchiveError:
        raise
    except _DAMAGE as error:
        raise ArchiveError(f"archive: expected a tar, got a damaged one: {error}") from error
    # tarfile takes a header that is damaged for the end.
    if not seen or rest.strip(b"\0"):
        raise ArchiveError("archive: expected a tar, got a damaged one: no member where one begins")
    _check_names(seen, limits)
    _check_inside(found)
    return found


def decompress_gzip(data: bytes, most: int) -> bytes:
    """Return what one gzip stream holds, and no more than some bytes of it are ever unpacked.

    Raises:
        ArchiveError: it is damaged, unpacks to more, or something follows it.
    """
    decompressor = zlib.decompressobj(zlib.MAX_WBITS | 16)
    try:
        # One byte more than is allowed shows that there is more, without unpacking it.
        plain = decompressor.decompress(data, most + 1)
    except zlib.error as error:
        raise ArchiveError(f"compression: cannot be undone: {error}") from error
    _check_size(len(plain), most)
    if not decompressor.eof or decompressor.unused_data:
        raise ArchiveError("compression: expected one gzip stream and nothing else")
    return plain


def _check_zip_entry(entry: zipfile.ZipInfo, stored: bool, folders: bool) -> None:
    # As the file has it: zipfile cuts a name at its first zero.
    name = entry.orig_filename
    kind = stat.S_IFMT(entry.external_attr >> 16)
    if entry.is_dir() or kind == stat.S_IFDIR:
        if not folders or entry.file_size:
            raise ArchiveError(f"member {name!r:.200}: expected a file, got a folder")
    elif kind == stat.S_IFLNK:
        raise ArchiveError(f"member {name!r:.200}: expected a file, got a link")
    elif kind not in {0, stat.S_IFREG}:
        raise ArchiveError(f"member {name!r:.200}: expected a file, got something else")
    check_name(name.removesuffix("/") if entry.is_dir() else name)
    if entry.flag_bits & 0x1:
        raise ArchiveError(f"member {name!r}: expected it plain, got it encrypted")
    if stored and (entry.compress_type, entry.compress_size) != (
        zipfile.ZIP_STORED,
        entry.file_size,
    ):
        raise ArchiveError(f"member {name!r}: expected it stored, got it compressed")
    if entry.compress_type not in {zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED}:
        raise ArchiveError(
            f"member {name!r}: expected it stored or deflated, got method {entry.compress_type}"
        )


def _zip_member(archive: zipfile.ZipFile, entry: zipfile.ZipInfo) -> Member:
    # By parts: asked for everything, zipfile unpacks up to two gigabytes of a member that says it
    # has a byte.
    parts = []
    with archive.open(entry) as file:
        while part := file.read(_CHUNK):
            parts.append(part)
    content = b"".join(parts)
    if len(content) != entry.file_size:
        raise ArchiveError(
            f"member {entry.filename!r}: expected {entry.file_size} bytes, got {len(content)}"
        )
    return Member(
        content,
        {
            "time": "-".join(f"{part:02}" for part in entry.date_time),
            "mode": oct(entry.external_attr >> 16),
            "compression": str(entry.compress_type),
            "system": str(entry.create_system),
        },
    )


def _tar_name(item: tarfile.TarInfo, folders: bool) -> str:
    """Return the name of a member that is a file, or a folder where these may be."""
    kind = "something else"
    if item.issparse():
        kind = "a sparse file"
    elif item.isreg() or (folders and item.isdir()):
        kind = ""
    elif item.isdir():
        kind = "a folder"
    elif item.issym() or item.islnk():
        kind = "a link"
    if kind:
        raise ArchiveError(f"member {item.name!r:.200}: expected a file, got {kind}")
    check_name(item.name)
    if item.size < 0 or (item.isdir() and item.size):
        raise ArchiveError(f"member {item.name!r}: expected a size, got {item.size}")
    return item.name


def _tar_member(archive: tarfile.TarFile, item: tarfile.TarInfo, data: bytes) -> Member:
    if item.offset_data + item.size > len(data):
        raise ArchiveError(
            f"member {item.name!r}: expected {item.size} bytes, the archive ends before"
        )
    return Member(
        data[item.offset_data : item.offset_data + item.size],
        {
            "time": str(item.mtime),
            "mode": oct(item.mode),
            "owner": f"{item.uname}:{item.gname} {item.uid}:{item.gid}",
        },
    )


def _check_names(names: list[str], limits: Limits) -> None:
    """Refuse names that come twice, or that are a file's and a folder's at once."""
    if len(names) > limits.members:
        raise _too_many(limits)
    once: set[str] = set()
    for name in names:
        if name in once:
            raise ArchiveError(f"member {name!r}: expected once, got it again")
        once.add(name)


def _check_inside(files: Iterable[str]) -> None:
    """Refuse a file of which another member's name makes a folder."""
    known = set(files)
    for name in known:
        folder = name
        while folder := folder.rpartition("/")[0]:
            if folder in known:
                raise ArchiveError(f"member {name!r}: expected no member {folder!r} beside it")


def _check_size(size: int, most: int) -> None:
    if size > most:
        raise ArchiveError(f"size: expected at most {most} bytes unpacked, got more")


def _too_many(limits: Limits) -> ArchiveError:
    return ArchiveError(f"archive: expected at most {limits.members} members, got more")
