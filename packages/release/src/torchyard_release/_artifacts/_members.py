"""Compares two archives that should be equal, member by member."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from pathlib import Path
from typing import Final

from torchyard.evidence.archives import Limits, Member, read_tar, read_zip


def members_of(path: Path) -> dict[str, bytes]:
    """Return the files of a wheel or an sdist by their names; folders are left out.

    Raises:
        ArchiveError: it is damaged, or holds what a package does not: a link, a name twice.
    """
    return {name: member.content for name, member in _read(path).items()}


def metadata_of(path: Path) -> list[bytes]:
    """Return the core metadata in a wheel or an sdist: one text, where it is sound.

    Raises:
        ArchiveError: as :func:`members_of`.
    """
    pattern = _METADATA[_kind(path)]
    found = _read(path, pattern.fullmatch)
    return [member.content for name, member in found.items() if pattern.fullmatch(name)]


def explain(first: Path, second: Path) -> tuple[str, ...]:
    """Return what differs between two wheels or two sdists, a line each; none if no byte does."""
    if first.read_bytes() == second.read_bytes():
        return ()
    left, right = _read(first), _read(second)
    lines = [f"{name}: only in the first" for name in left if name not in right]
    lines += [f"{name}: only in the second" for name in right if name not in left]
    both = [name for name in left if name in right]
    if not lines and list(left) != list(right):
        lines.append("the members are in another order")
    for name in both:
        this, other = left[name], right[name]
        if this.content != other.content:
            lines.append(f"{name}: {_content(this.content, other.content)}")
        lines += [
            f"{name}: {fact} {value} in the first, {other.facts[fact]} in the second"
            for fact, value in this.facts.items()
            if other.facts[fact] != value
        ]
    return tuple(lines) or ("every member is the same: the container around them differs",)


def _content(first: bytes, second: bytes) -> str:
    if len(first) != len(second):
        return f"{len(first)} bytes in the first, {len(second)} in the second"
    odd = [
        place for place, pair in enumerate(zip(first, second, strict=True)) if pair[0] != pair[1]
    ]
    digests = " and ".join(hashlib.sha256(data).hexdigest()[:12] for data in (first, second))
    return f"{len(odd)} of {len(first)} bytes differ, the first at {odd[0]}; sha256 {digests}"


def _read(path: Path, wanted: Callable[[str], object] | None = None) -> dict[str, Member]:
    data = path.read_bytes()
    if _kind(path) == "wheel":
        return read_zip(data, _LIMITS, folders=True, wanted=wanted)
    return read_tar(data, _LIMITS, folders=True)


def _kind(path: Path) -> str:
    return "wheel" if path.suffix == ".whl" else "sdist"


_METADATA: Final = {
    "sdist": re.compile(r"[^/]+/PKG-INFO"),
    "wheel": re.compile(r"[^/]+\.dist-info/METADATA"),
}
# Far above the budget of any package.
_LIMITS: Final = Limits(unpacked=8 << 30)
