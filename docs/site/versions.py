"""``python -m docs.site.versions SITE FOLDER [BASE]``: put a built site beside other versions.

Each lies in a folder of its name, whose pages read the list of them one folder above.
"""

from __future__ import annotations

import json
import shutil
import sys
import tomllib
from pathlib import Path
from typing import Final

from packaging.version import InvalidVersion, Version

__all__ = ["LISTED", "add_version", "folder_of"]

LISTED: Final = "versions.json"
_DEVELOPMENT: Final = "dev"
_INDEX: Final = "docs/index.html"
_TRAIN: Final = Path(__file__).parents[2] / "train.toml"
# Of each version; that of the folder differs in where it leads.
_FIRST: Final = Path(__file__).parent / "root" / "index.html"


def folder_of(version: str) -> str:
    """Return the folder of a version; one that is being developed replaces the former one."""
    return _DEVELOPMENT if Version(version).is_devrelease else version


def add_version(site: Path, version: str, folder: Path, base: str = "/") -> list[str]:
    """Copy a built site to its place, in place of a former one, and write the list again.

    The first page of the folder leads to the newest release.

    Args:
        site: what Sphinx wrote.
        version: of the site.
        folder: with a folder for each version.
        base: path of the folder's address, from and to a slash.

    Returns:
        The versions, releases first, newest first.

    Raises:
        ValueError: there is no site, or something else lies in its place.
    """
    place = folder / folder_of(version)
    if not (site / _INDEX).is_file():
        raise ValueError(f"versions: site: expected the folder of a built site, got {site}")
    if place.exists():
        if not (place / _INDEX).is_file():
            raise ValueError(f"versions: folder: expected a built site or nothing in {place}")
        shutil.rmtree(place)
    shutil.copytree(site, place)
    found = [path.parents[1].name for path in folder.glob(f"*/{_INDEX}")]
    names = sorted(filter(_is_version, found), key=_age, reverse=True)
    newest = names[0]
    rows = [
        {
            "name": f"{name} (newest)" if name == newest != _DEVELOPMENT else name,
            "version": name,
            "url": f"{base}{name}/",
            "preferred": name == newest,
        }
        for name in names
    ]
    (folder / LISTED).write_text(json.dumps(rows, indent=2) + "\n", encoding="utf-8")
    first = _FIRST.read_text(encoding="utf-8").replace(_INDEX, f"{newest}/{_INDEX}")
    (folder / "index.html").write_text(first, encoding="utf-8")
    return names


def _is_version(name: str) -> bool:
    if name == _DEVELOPMENT:
        return True
    try:
        return bool(Version(name))
    except InvalidVersion:
        return False


def _age(name: str) -> tuple[bool, bool, Version]:
    """Return what sorts releases after candidates, and both after what is being developed."""
    version = Version("0" if name == _DEVELOPMENT else name)
    return name != _DEVELOPMENT, not version.is_prerelease, version


def _main(site: str, folder: str, base: str = "/") -> None:
    version = tomllib.loads(_TRAIN.read_text(encoding="utf-8"))["train"]["version"]
    print(", ".join(add_version(Path(site), version, Path(folder), base)))


if __name__ == "__main__":
    _main(*sys.argv[1:])
