"""Copies in noxfile.py: its sessions must name the declared packages and targets."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from torchyard import child_environ
from torchyard_release._copies._drift import Derived, Drift
from torchyard_release._declaration._train import Train

_FILE: Final = "noxfile.py"
_CELL: Final = re.compile(r"(pkg|hw)-(.+)")


def derive_matrix(root: Path, train: Train) -> Derived:
    """Compare the tags ``pkg-*`` and ``hw-*`` of nox's sessions with the declaration.

    Every package and every target of a package has a session; every such tag is declared.
    """
    if not (root / _FILE).is_file():
        return Derived((), {}, 0)
    if find_spec("nox") is None:
        return Derived(
            (
                Drift(
                    _FILE,
                    "sessions",
                    "unknown, because nox is not installed",
                    "sessions for every package and target",
                    "`pip install nox`, then check again",
                ),
            ),
            {},
            0,
        )
    listed = subprocess.run(
        # Selected by what none is called, because the bare list leaves out what runs on demand.
        [
            *(sys.executable, "-m", "nox", "--noxfile", str(root / _FILE)),
            *("--list", "--json", "--keywords", "not nothing_is_called_this"),
        ],
        cwd=root,
        capture_output=True,
        text=True,
        env=child_environ({"NO_COLOR": "1", "FORCE_COLOR": None}),
    )
    if listed.returncode:
        said = " ".join(listed.stderr.split()[-40:])
        return Derived(
            (Drift(_FILE, "sessions", f"an error: {said}", "a list", "run `nox --list`"),), {}, 0
        )
    found: dict[str, set[str]] = {"pkg": set(), "hw": set()}
    for session in json.loads(listed.stdout):
        for tag in session["tags"]:
            if match := _CELL.fullmatch(tag):
                found[match[1]].add(match[2])
    declared = {
        "pkg": {package.folder.name for package in train.packages},
        "hw": {target for package in train.packages for target in package.hardware},
    }
    known = {"pkg": declared["pkg"], "hw": {target for target, _ in train.hardware}}
    drifts = []
    for kind in ("pkg", "hw"):
        for name in sorted(declared[kind] - found[kind]):
            tag = f"{kind}-{name}"
            drifts.append(Drift(_FILE, "tags", f"none {tag}", tag, "give a session that tag"))
        for name in sorted(found[kind] - known[kind]):
            tag = f"{kind}-{name}"
            drifts.append(
                Drift(_FILE, "tags", tag, "none such", "take it out, or declare it in train.toml")
            )
    return Derived(tuple(drifts), {}, sum(map(len, declared.values())))
