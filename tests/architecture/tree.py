"""The checkout as data: its packages and their files."""

from __future__ import annotations

import ast
import subprocess
import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

__all__ = ["PACKAGES", "ROOT", "Package", "files", "module_name", "parsed", "sources"]

ROOT: Final = Path(__file__).parents[2]


@dataclass(frozen=True, slots=True)
class Package:
    """One distribution of the tree.

    Attributes:
        folder: its folder, relative to the root.
        project: the ``[project]`` table of its pyproject.toml.
        import_name: its one top-level import name.
    """

    folder: Path
    project: dict[str, Any]
    import_name: str


def _package(pyproject: Path) -> Package:
    project = tomllib.loads(pyproject.read_text(encoding="utf-8"))["project"]
    folder = pyproject.parent.relative_to(ROOT)
    return Package(folder, project, str(project["name"]).replace("-", "_"))


PACKAGES: Final = tuple(_package(path) for path in sorted(ROOT.glob("p*/*/pyproject.toml")))


@cache
def files() -> tuple[Path, ...]:
    """Return every file that git tracks or would track, relative to the root."""
    listing = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    return tuple(Path(line) for line in sorted(listing.splitlines()) if (ROOT / line).is_file())


def sources(suffix: str = ".py") -> tuple[Path, ...]:
    """Return the packages' own source files with a suffix: what a user installs, no tests."""
    folders = tuple(f"{package.folder.as_posix()}/" for package in PACKAGES)
    return tuple(
        path
        for path in files()
        if path.suffix == suffix
        and path.as_posix().startswith(folders)
        and path.relative_to(*path.parts[:1]).parts[1] not in {"tests"}
    )


def module_name(path: Path) -> str:
    """Return the dotted name of a source file under some ``src/``."""
    parts = list(path.with_suffix("").parts)
    parts = parts[parts.index("src") + 1 :]
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@cache
def parsed(path: Path) -> ast.Module:
    """Return a file's syntax tree."""
    return ast.parse((ROOT / path).read_text(encoding="utf-8"), filename=str(path))
