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
from typing import Final

from torchyard.evidence import raised_as
from torchyard.evidence.archives import Limits, read_zip
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
    if len(data) > SIZE_LIMIT:
        raise ArtifactError(f"size: expected at most {SIZE_LIMIT} bytes, got {len(data)}")
    with raised_as(ArtifactError):
        found = read_zip(data, Limits(SIZE_LIMIT, MEMBER_LIMIT), stored=True)
    members = {name: member.content for name, member in found.items()}
    if write_archive(members) != data:
        raise ArtifactError(
            "archive: expected its members alone, stored, sorted by name, each once, with no "
            "time, comment or byte besides; it was changed or written by something else"
        )
    return members


def _check_name(name: str) -> None:
    if not _NAME.fullmatch(name) or ".." in name:
        raise ArtifactError(
            f"member {name!r}: expected a relative path of letters, digits, dots and dashes"
        )
