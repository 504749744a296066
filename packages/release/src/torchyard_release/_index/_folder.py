"""A package index as a folder: files, and the pages of PEP 503 and PEP 691 that list them.

Any server of static files serves it, and pip reads it by a ``file:`` address too.
"""

from __future__ import annotations

import html
import json
from dataclasses import dataclass
from email.parser import BytesParser
from pathlib import Path
from typing import Any, Final

from packaging.utils import (
    InvalidSdistFilename,
    InvalidWheelFilename,
    canonicalize_name,
    parse_sdist_filename,
    parse_wheel_filename,
)

from torchyard.evidence import ArchiveError
from torchyard_release._artifacts._members import metadata_of
from torchyard_release._atomic import write_atomically, write_json_atomically
from torchyard_release._errors import ReleaseError
from torchyard_release._records._candidate import sha256

API_VERSION: Final = "1.1"
_YANKED: Final = "yanked.json"


@dataclass(frozen=True, slots=True)
class _File:
    name: str
    project: str
    version: str
    sha256: str
    size: int
    requires_python: str
    metadata_sha256: str
    yanked: str | None


def project_and_version(name: str) -> tuple[str, str]:
    """Return the normalised project and the version that a wheel's or sdist's name says."""
    try:
        if name.endswith(".whl"):
            project, version, *_ = parse_wheel_filename(name)
        else:
            project, version = parse_sdist_filename(name)
    except (InvalidWheelFilename, InvalidSdistFilename) as error:
        raise ReleaseError(
            f"{name}: expected the name of a wheel or of an sdist, got: {error}",
            remedy="remove the file, or build it with a PEP 517 build tool",
        ) from error
    return project, str(version)


def write_index(folder: Path) -> tuple[str, ...]:
    """Write the pages for the files in ``folder/files`` and return the projects listed.

    A project of which no file is left has no page.
    """
    store = folder / "files"
    store.mkdir(parents=True, exist_ok=True)
    yanked = read_yanked(folder)
    found: dict[str, list[_File]] = {}
    for path in sorted(store.iterdir()):
        if path.suffix in {".whl", ".gz"} and not path.name.startswith("."):
            file = _file(path, yanked.get(path.name))
            found.setdefault(file.project, []).append(file)
    simple = folder / "simple"
    write_atomically(simple / "index.html", _root_page(sorted(found)).encode())
    listing = {
        "meta": {"api-version": API_VERSION},
        "projects": [{"name": n} for n in sorted(found)],
    }
    write_json_atomically(simple / "index.json", listing)
    for project, files in found.items():
        write_atomically(simple / project / "index.html", _project_page(project, files).encode())
        write_json_atomically(simple / project / "index.json", _project_data(project, files))
    for page in simple.glob("*/index.*"):
        if page.parent.name not in found:
            page.unlink()
    return tuple(sorted(found))


def read_yanked(folder: Path) -> dict[str, str]:
    """Return file name -> reason for every file of an index that is yanked."""
    path = folder / _YANKED
    return dict(json.loads(path.read_text(encoding="utf-8"))) if path.exists() else {}


def yank(folder: Path, files: dict[str, str]) -> None:
    """Mark files, by name with a reason, as not to be chosen; who pins them still gets them."""
    write_json_atomically(folder / _YANKED, {**read_yanked(folder), **files})
    write_index(folder)


def _file(path: Path, yanked: str | None) -> _File:
    project, version = project_and_version(path.name)
    metadata = _metadata(path)
    beside = path.with_name(f"{path.name}.metadata")
    if path.suffix == ".whl" and metadata and not beside.exists():
        write_atomically(beside, metadata)
    headers = BytesParser().parsebytes(metadata)
    return _File(
        name=path.name,
        project=canonicalize_name(project),
        version=version,
        sha256=sha256(path),
        size=path.stat().st_size,
        requires_python=headers.get("Requires-Python", ""),
        metadata_sha256=sha256(beside) if beside.exists() else "",
        yanked=yanked,
    )


def _metadata(path: Path) -> bytes:
    """Return a distribution's core metadata; empty where it has none that can be read."""
    try:
        return next(iter(metadata_of(path)), b"")
    except (OSError, ArchiveError):
        return b""


def _root_page(projects: list[str]) -> str:
    return _page("Simple index", [f'<a href="{name}/">{name}</a><br>' for name in projects])


def _project_page(project: str, files: list[_File]) -> str:
    lines = []
    for file in files:
        words = [f'href="../../files/{file.name}#sha256={file.sha256}"']
        if file.requires_python:
            words.append(f'data-requires-python="{html.escape(file.requires_python)}"')
        if file.metadata_sha256:
            words.append(f'data-core-metadata="sha256={file.metadata_sha256}"')
        if file.yanked is not None:
            words.append(f'data-yanked="{html.escape(file.yanked)}"')
        lines.append(f"<a {' '.join(words)}>{file.name}</a><br>")
    return _page(project, lines)


def _project_data(project: str, files: list[_File]) -> dict[str, Any]:
    return {
        "meta": {"api-version": API_VERSION},
        "name": project,
        "versions": sorted({file.version for file in files}),
        "files": [
            {
                "filename": file.name,
                "url": f"../../files/{file.name}",
                "hashes": {"sha256": file.sha256},
                "size": file.size,
                **({"requires-python": file.requires_python} if file.requires_python else {}),
                "core-metadata": (
                    {"sha256": file.metadata_sha256} if file.metadata_sha256 else False
                ),
                "yanked": file.yanked or (file.yanked is not None),
            }
            for file in files
        ],
    }


def _page(title: str, lines: list[str]) -> str:
    body = "\n".join(lines)
    return (
        "<!DOCTYPE html>\n<html><head>"
        f'<meta name="pypi:repository-version" content="{API_VERSION}"><title>{title}</title>'
        f"</head><body>\n{body}\n</body></html>\n"
    )
