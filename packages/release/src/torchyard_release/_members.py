"""Two archives that should be the same: which members differ, and in what."""

from __future__ import annotations

import hashlib
import tarfile
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

_Member = Mapping[str, str]


def members_of(path: Path) -> dict[str, bytes]:
    """Return the files of a wheel or an sdist by their names; folders and links are left out."""
    return {name: content for name, (content, _) in _READERS[_kind(path)](path).items()}


def explain(first: Path, second: Path) -> tuple[str, ...]:
    """Return what differs between two wheels or two sdists, a line each; none if no byte does."""
    if first.read_bytes() == second.read_bytes():
        return ()
    read = _READERS[_kind(first)]
    left, right = read(first), read(second)
    lines = [f"{name}: only in the first" for name in left if name not in right]
    lines += [f"{name}: only in the second" for name in right if name not in left]
    both = [name for name in left if name in right]
    if not lines and list(left) != list(right):
        lines.append("the members stand in another order")
    for name in both:
        (content, facts), (other, others) = left[name], right[name]
        if content != other:
            lines.append(f"{name}: {_content(content, other)}")
        lines += [
            f"{name}: {fact} {value} in the first, {others[fact]} in the second"
            for fact, value in facts.items()
            if others[fact] != value
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


def _zip(path: Path) -> dict[str, tuple[bytes, _Member]]:
    with zipfile.ZipFile(path) as archive:
        return {
            item.filename: (
                archive.read(item),
                {
                    "time": "-".join(f"{part:02}" for part in item.date_time),
                    "mode": oct(item.external_attr >> 16),
                    "compression": str(item.compress_type),
                    "system": str(item.create_system),
                },
            )
            for item in archive.infolist()
            if not item.is_dir()
        }


def _tar(path: Path) -> dict[str, tuple[bytes, _Member]]:
    found: dict[str, tuple[bytes, _Member]] = {}
    with tarfile.open(path) as archive:
        for item in archive:
            file = archive.extractfile(item) if item.isfile() else None
            if file is not None:
                facts = {
                    "time": str(item.mtime),
                    "mode": oct(item.mode),
                    "owner": f"{item.uname}:{item.gname} {item.uid}:{item.gid}",
                }
                found[item.name] = (file.read(), facts)
    return found


def _kind(path: Path) -> str:
    return "wheel" if path.suffix == ".whl" else "sdist"


_READERS: Final[Mapping[str, Callable[[Path], dict[str, tuple[bytes, _Member]]]]] = {
    "sdist": _tar,
    "wheel": _zip,
}
