"""An artifact's members: required files, and forbidden ones."""

from __future__ import annotations

import ast
import base64
import csv
import hashlib
import io
import itertools
from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from typing import Any, Final

from torchyard_release._artifacts._findings import Fault, Finding
from torchyard_release._declaration._package import Package
from torchyard_release._declaration._train import Train

# Never shipped, wherever it lies.
_STRAY: Final = (
    *("*.pyc", "*/__pycache__/*", "*.orig", "*.rej", "*~", "*.swp", "*/.DS_Store", "*.egg-info/*"),
    *("*/.git/*", "*/.env", "*/node_modules/*", "*.pem", "*.key", "*/.train/*", "*/.mypy_cache/*"),
    *("*/.pytest_cache/*", "*/.hypothesis/*", "*/.nox/*", "*/.venv/*", "*/core.[0-9]*", "*.log"),
)
_LIBRARIES: Final = ("*.so", "*.so.*", "*.pyd", "*.dylib", "*.dll")
_BRANCH: Final = "fix it on the branch and cut another candidate"


def judge_wheel(
    file: str,
    members: Mapping[str, bytes],
    train: Train,
    package: Package,
    project: Mapping[str, Any],
) -> Iterator[Finding]:
    """Find what is wrong with the files of a wheel."""
    info = f"{package.stem}-{train.version_of(package)}.dist-info/"
    data = info.replace(".dist-info/", ".data/")
    for name in members:
        if not name.startswith((f"{package.module}/", info, data)):
            expected = f"expected files under {package.module}/ alone, got {name}"
            yield Finding(file, Fault.STRAY, expected, f"exclude it; {_BRANCH}")
    yield from _strays(file, members)
    platform = file.removesuffix(".whl").rpartition("-")[2]
    more = [needed for on, needed in package.contains_on if fnmatchcase(platform, on)]
    for pattern in (*package.contains, *itertools.chain(*more)):
        if not any(fnmatchcase(name, pattern) and content for name, content in members.items()):
            expected = f"expected a file {pattern} with something in it, got none"
            yield Finding(
                file, Fault.LIBRARY, expected, f"see why the build left it out; {_BRANCH}"
            )
    libraries = [name for name in members if any(fnmatchcase(name, p) for p in _LIBRARIES)]
    pure = file.removesuffix(".whl").endswith("-any")
    if pure and libraries:
        text = f"expected a tag of one platform, because of {libraries[0]}, got one of any"
        yield Finding(file, Fault.PURITY, text, _BRANCH)
    if not pure and not libraries:
        text = "expected a shared library, because its tag is of one platform, got none"
        yield Finding(file, Fault.LIBRARY, text, f"see why the build left it out; {_BRANCH}")
    licensed = any(name.startswith(f"{info}licenses/") for name in members)
    if project.get("license-files") and not licensed:
        text = f"expected a file in {info}licenses/, got none"
        yield Finding(file, Fault.LICENSE, text, f"list it in `license-files`; {_BRANCH}")
    yield from _record(file, members, f"{info}RECORD")
    yield from _versions(file, members, f"{package.module}/", train.version_of(package))


def judge_sdist(
    file: str,
    members: Mapping[str, bytes],
    train: Train,
    package: Package,
    project: Mapping[str, Any],
) -> Iterator[Finding]:
    """Find what is wrong with the files of an sdist."""
    top = f"{package.stem}-{train.version_of(package)}/"
    for name in members:
        if not name.startswith(top):
            text = f"expected files under {top} alone, got {name}"
            yield Finding(file, Fault.STRAY, text, f"exclude it; {_BRANCH}")
    yield from _strays(file, members)
    for needed in ("pyproject.toml", "PKG-INFO", *_readme(project)):
        if f"{top}{needed}" not in members:
            text = f"expected {top}{needed}, got none"
            yield Finding(file, Fault.METADATA, text, _BRANCH)
    folders = (f"{top}src/{package.module}/", f"{top}{package.module}/")
    if not any(name.startswith(folders) for name in members):
        text = f"expected sources under {folders[0]}, got none"
        yield Finding(file, Fault.METADATA, text, _BRANCH)
    for folder in folders:
        yield from _versions(file, members, folder, train.version_of(package))


def _readme(project: Mapping[str, Any]) -> tuple[str, ...]:
    readme = project.get("readme")
    return (readme,) if isinstance(readme, str) else ()


def _strays(file: str, members: Mapping[str, bytes]) -> Iterator[Finding]:
    for name in members:
        if any(fnmatchcase(f"/{name}", pattern) for pattern in _STRAY):
            text = f"{name} is no part of a package"
            yield Finding(file, Fault.STRAY, text, f"exclude it; {_BRANCH}")


def _record(file: str, members: Mapping[str, bytes], name: str) -> Iterator[Finding]:
    """Compare RECORD, by which installers check what they unpack, with what is there."""
    if name not in members:
        yield Finding(file, Fault.RECORD, f"expected {name}, got none", _BRANCH)
        return
    rows = {
        row[0]: row[1] for row in csv.reader(io.StringIO(members[name].decode())) if len(row) == 3
    }
    for member, content in members.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
        if member == name:
            continue
        if rows.get(member) != f"sha256={digest}":
            text = f"{member}: expected its digest in RECORD, got {rows.get(member) or 'none'}"
            yield Finding(file, Fault.RECORD, text, "somebody changed the wheel: build again")
    for member in sorted(rows.keys() - members.keys()):
        text = f"RECORD lists {member}, which is not there"
        yield Finding(file, Fault.RECORD, text, "somebody changed the wheel: build again")


def _versions(
    file: str, members: Mapping[str, bytes], folder: str, version: str
) -> Iterator[Finding]:
    """Find ``__version__`` in the sources that is another version."""
    for name, content in members.items():
        if not name.startswith(folder) or not name.endswith(".py"):
            continue
        try:
            tree = ast.parse(content)
        except (SyntaxError, ValueError) as error:
            yield Finding(file, Fault.UNREADABLE, f"{name}: {error}", _BRANCH)
            continue
        for node in tree.body:
            if not isinstance(node, ast.Assign | ast.AnnAssign):
                continue
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            named = any(isinstance(t, ast.Name) and t.id == "__version__" for t in targets)
            if named and isinstance(node.value, ast.Constant) and node.value.value != version:
                text = f"{name}: expected __version__ {version!r}, got {node.value.value!r}"
                yield Finding(
                    file, Fault.VERSION_INSIDE, text, f"list it in `version_files`; {_BRANCH}"
                )
