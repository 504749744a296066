"""A smoke test that runs inside a clean environment; its Python receives this file as text.

Standard library only. Words: the folder that everything must come from; then the distributions.
Prints one JSON document: distribution -> what is wrong with it.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
import json
import sys
from pathlib import Path


def _tried(name: str, folder: Path) -> list[str]:
    try:
        found = importlib.metadata.distribution(name)
    except importlib.metadata.PackageNotFoundError:
        return ["it is not installed"]
    wrong = []
    tops = {
        path.parts[0].removesuffix(".py")
        for path in found.files or ()
        if path.suffix == ".py" and not path.parts[0].endswith(".dist-info")
    }
    if not tops:
        wrong.append("it installed no Python module")
    for module in sorted(tops):
        try:
            origin = importlib.import_module(module).__file__ or ""
        # Whatever a package raises when it is imported, its user sees.
        except BaseException as error:
            wrong.append(f"import {module}: {type(error).__name__}: {error}")
            continue
        if folder not in Path(origin).resolve().parents:
            wrong.append(f"import {module}: expected it below {folder}, it comes from {origin}")
    for entry in found.entry_points:
        try:
            # Others may name data of a package, which only their own reader understands.
            if entry.group.endswith("_scripts"):
                entry.load()
            elif importlib.util.find_spec(entry.module.partition(".")[0]) is None:
                wrong.append(f"entry point {entry.group} {entry.name}: no module {entry.module}")
        except BaseException as error:
            wrong.append(f"entry point {entry.group} {entry.name}: {type(error).__name__}: {error}")
    return wrong


if __name__ == "__main__":
    site, *names = sys.argv[1:]
    answer = {name: _tried(name, Path(site).resolve()) for name in names}
    print(json.dumps(answer))
