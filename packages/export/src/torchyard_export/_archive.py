"""The form of an artifact: a zip with one way only to write given members.

Any program unzips it. Members are stored as they are, sorted by name, without times, owners, links
or comments. Reading is strict: what this file would not have written is refused, so no byte can
change unseen; nothing is unpacked to a disk, and nothing grows while it is read.
"""

from __future__ import annotations

import io
import re
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from torchyard_export._errors import ArtifactError

# Names of letters, digits, dots, dashes and underscores, in folders: no root, no parent, no drive.
_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*(/[A-Za-z0-9_][A-Za-z0-9_.-]*)*")
_TIME: Final = (1980, 1, 1, 0, 0, 0)
_MODE: Final = 0o100644 << 16
# Bounds on a file that somebody else wrote.
SIZE_LIMIT: Final = 16 << 30
MEMBER_LIMIT: Final = 4096


def write_archive(members: Mapping[str, bytes]) -> bytes:
    """Return the one archive of some members.

    Raises:
        ArtifactError: a name is not a plain relative path.
    """
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        for name, content in sorted(members.items()):
            _check_name(name)
            info = zipfile.ZipInfo(name, _TIME)
            info.external_attr = _MODE
            info.create_system = 3
            archive.writestr(info, content)
    return buffer.getvalue()


def read_archive(data: bytes) -> dict[str, bytes]:
    """Return an archive's members by name.

    Raises:
        ArtifactError: it is too large, truncated, changed, or not the one archive of its members.
    """
    members = read_members(data)
    if write_archive(members) != data:
        raise ArtifactError(
            "archive: expected its members alone, stored, sorted by name, each once, with no link, "
            "time, comment or byte besides; it was changed or written by something else"
        )
    return members


def read_members(data: bytes) -> dict[str, bytes]:
    """Return the members of any plain zip whose members are stored; stricter forms build on it.

    Raises:
        ArtifactError: a name, a kind, a size or a checksum is wrong.
    """
    if len(data) > SIZE_LIMIT:
        raise ArtifactError(f"size: expected at most {SIZE_LIMIT} bytes, got {len(data)}")
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            entries = archive.infolist()
            _check_entries(entries, len(data))
            return {entry.filename: archive.read(entry) for entry in entries}
    # zipfile raises these for damage, by place of the damage.
    except (zipfile.BadZipFile, EOFError, NotImplementedError, RuntimeError, ValueError) as error:
        if isinstance(error, ArtifactError):
            raise
        raise ArtifactError(f"archive: changed, truncated or no artifact: {error}") from error


def read_file(path: Path) -> bytes:
    """Return a file's bytes; ArtifactError where it is larger than any artifact may be."""
    with path.open("rb") as file:
        size = path.stat().st_size
        if size > SIZE_LIMIT:
            raise ArtifactError(f"size: expected at most {SIZE_LIMIT} bytes, got {size}")
        return file.read(SIZE_LIMIT + 1)


def _check_entries(entries: list[zipfile.ZipInfo], size: int) -> None:
    if len(entries) > MEMBER_LIMIT:
        raise ArtifactError(f"archive: expected at most {MEMBER_LIMIT} members, got {len(entries)}")
    names = [entry.filename for entry in entries]
    if len(set(names)) != len(names):
        raise ArtifactError("archive: expected each member once")
    total = 0
    for entry in entries:
        _check_name(entry.filename)
        kind = (entry.external_attr >> 16) & 0o170000
        if kind not in {0, 0o100000}:
            raise ArtifactError(f"member {entry.filename!r}: expected a file, got a link or folder")
        if entry.compress_type != zipfile.ZIP_STORED or entry.compress_size != entry.file_size:
            raise ArtifactError(f"member {entry.filename!r}: expected it stored, got it compressed")
        if entry.flag_bits & 0x1:
            raise ArtifactError(f"member {entry.filename!r}: expected it plain, got it encrypted")
        total += entry.file_size
        # Before a byte is read: overlapping members would unpack to more than the file holds.
        if total > size:
            raise ArtifactError(f"archive: its members are larger than its {size} bytes")


def _check_name(name: str) -> None:
    if not _NAME.fullmatch(name) or ".." in name:
        raise ArtifactError(
            f"member {name!r}: expected a relative path of letters, digits, dots and dashes"
        )
