"""Changelog fragments: one line each, with its package and type in the file's name."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from torchyard import child_environ
from torchyard_release._declaration._train import Train
from torchyard_release._errors import WorkspaceError

_REMEDY: Final = "name it <change>.<package>.<type>.md and write one sentence into it"
_WORKSPACE: Final = "workspace"


@dataclass(frozen=True, slots=True)
class Fragment:
    """One change that a user can notice.

    Attributes:
        change: its number, or a word.
        package: the folder's name of the package, or ``workspace``.
        kind: one of towncrier's types.
        text: the sentence.
    """

    change: str
    package: str
    kind: str
    text: str


def read_fragments(root: Path, train: Train) -> tuple[Fragment, ...]:
    """Return the fragments of a tree, sorted; WorkspaceError names one that is wrong."""
    settings = _settings(root)
    folder = root / str(settings["directory"])
    kinds = [str(kind["directory"]) for kind in settings["type"]]
    packages = [package.folder.name for package in train.packages] + [_WORKSPACE]
    ignored = {"README.md", ".gitignore", *map(str, settings.get("ignore", []))}
    if template := settings.get("template"):
        ignored.add(Path(str(template)).name)
    fragments = []
    for path in sorted(folder.iterdir()):
        if path.name in ignored:
            continue
        words = path.name.removesuffix(".md").split(".")
        where = path.relative_to(root)
        if not path.name.endswith(".md") or len(words) != 3 or not words[0]:
            raise WorkspaceError(f"{where}: not the name of a fragment", _REMEDY)
        change, package, kind = words
        for value, known, what in ((package, packages, "package"), (kind, kinds, "type")):
            if value not in known:
                raise WorkspaceError(
                    f"{where}: {what}: expected one of {', '.join(known)}, got {value!r}", _REMEDY
                )
        text = path.read_text(encoding="utf-8").strip()
        if not text:
            raise WorkspaceError(f"{where}: it is empty", _REMEDY)
        fragments.append(Fragment(change, package, kind, text))
    return tuple(fragments)


def check_fragments(root: Path, train: Train) -> int:
    """Return how many fragments there are, each of them right, also to towncrier.

    Raises:
        WorkspaceError: one is wrong, there is none, or towncrier refuses them.
    """
    fragments = read_fragments(root, train)
    if not fragments:
        raise WorkspaceError(
            "changelog: no fragment, so that nothing was changed for users",
            "add one for each change that a user can notice, or leave this train out",
        )
    words = ("build", "--draft", "--version", train.release, "--date", train.departs.isoformat())
    done = subprocess.run(
        [sys.executable, "-m", "towncrier", *words, "--dir", str(root)],
        cwd=root,
        capture_output=True,
        text=True,
        env=child_environ({}),
    )
    if done.returncode:
        said = " ".join((done.stderr or done.stdout).split()[-40:])
        raise WorkspaceError(f"towncrier: {said}", "`towncrier build --draft` says the same")
    return len(fragments)


def _settings(root: Path) -> dict[str, Any]:
    path = root / "pyproject.toml"
    try:
        settings = tomllib.loads(path.read_text(encoding="utf-8"))["tool"]["towncrier"]
        if not settings["type"] or not (root / settings["directory"]).is_dir():
            raise KeyError("directory")
    except (OSError, KeyError, tomllib.TOMLDecodeError) as error:
        raise WorkspaceError(
            f"{path}: expected [tool.towncrier] with its directory and types, got {error!r}",
            "set towncrier up: changes become notes by it",
        ) from None
    assert isinstance(settings, dict)
    return settings
