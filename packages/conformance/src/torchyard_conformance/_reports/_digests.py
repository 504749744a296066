"""Digests of an installed distribution's files: the exact bytes that were certified."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, distribution
from importlib.util import find_spec
from pathlib import Path
from typing import Final

# What an installer leaves, which says how the files came here and nothing about them.
_INSTALLERS: Final = {"INSTALLER", "RECORD", "REQUESTED", "direct_url.json"}


def digests(name: str, package: str) -> dict[str, str]:
    """Return sha256, in hexadecimal, of each installed file of a distribution, by its path.

    Paths are relative to the site folder. Everything inside the package counts, whoever put it
    there and wherever it is: of a distribution that is installed to be edited, the sources.

    Args:
        name: the distribution; of one that is not installed, nothing is returned.
        package: its import package.
    """
    found = {**dict(_recorded(name)), **dict(_inside(package))}
    return {
        path: hashlib.sha256(file.read_bytes()).hexdigest() for path, file in sorted(found.items())
    }


def _recorded(name: str) -> Iterator[tuple[str, Path]]:
    try:
        installed = distribution(name)
    except (PackageNotFoundError, ValueError):
        return
    for path in installed.files or ():
        file = Path(str(path.locate()))
        if ".." not in path.parts and path.name not in _INSTALLERS and _lasts(file):
            yield path.as_posix(), file


def _inside(package: str) -> Iterator[tuple[str, Path]]:
    spec = find_spec(package) if package.isidentifier() else None
    for folder in (spec.submodule_search_locations or ()) if spec is not None else ():
        for file in Path(folder).rglob("*"):
            if _lasts(file):
                yield f"{package}/{file.relative_to(folder).as_posix()}", file


def _lasts(file: Path) -> bool:
    """Return whether a file is there, and is not one that Python rewrites as it likes."""
    return file.is_file() and "__pycache__" not in file.parts
