"""Wheels that take no time to make: a module of one line, and metadata that tools accept."""

from __future__ import annotations

import hashlib
import zipfile
from collections.abc import Sequence
from pathlib import Path

__all__ = ["write_wheel"]


def write_wheel(
    folder: Path,
    name: str,
    version: str,
    *,
    requires: Sequence[str] = (),
    text: str = "VALUE = 1\n",
    requires_python: str = ">=3.11",
) -> tuple[str, str]:
    """Write a wheel of one module into a folder, and return its file name and its sha256."""
    folder.mkdir(parents=True, exist_ok=True)
    module = name.replace("-", "_")
    info = f"{module}-{version}.dist-info"
    lines = ["Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}"]
    lines += [f"Requires-Python: {requires_python}", *(f"Requires-Dist: {r}" for r in requires)]
    members = {
        f"{module}/__init__.py": text,
        f"{info}/METADATA": "\n".join(lines) + "\n\nText.\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\n"
        "Tag: py3-none-any\n",
    }
    record = "".join(f"{path},,\n" for path in (*members, f"{info}/RECORD"))
    path = folder / f"{module}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for member, content in {**members, f"{info}/RECORD": record}.items():
            archive.writestr(zipfile.ZipInfo(member), content)
    return path.name, hashlib.sha256(path.read_bytes()).hexdigest()
