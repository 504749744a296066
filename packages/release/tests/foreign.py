"""A small monorepo that has nothing to do with torchyard, made for each test that wants it.

Three packages: ``orchard`` is pure Python, ``orchard-press`` has a shared library, and
``orchard-shop`` requires both and has a command.
"""

from __future__ import annotations

import os
import subprocess
import sysconfig
from pathlib import Path
from typing import Final

from click.testing import CliRunner, Result

from torchyard_release._cli import command

__all__ = ["MODULES", "PLATFORM", "TRAIN", "git", "make", "release", "write"]

MODULES: Final = {
    "orchard": "orchard",
    "orchard-press": "orchard_press",
    "orchard-shop": "orchard_shop",
}
PLATFORM: Final = sysconfig.get_platform().replace("-", "_").replace(".", "_")
_IDENTITY: Final = {
    "GIT_AUTHOR_NAME": "Pomona",
    "GIT_AUTHOR_EMAIL": "pomona@orchard.example",
    "GIT_COMMITTER_NAME": "Pomona",
    "GIT_COMMITTER_EMAIL": "pomona@orchard.example",
    "GIT_AUTHOR_DATE": "2027-01-04T10:00:00Z",
    "GIT_COMMITTER_DATE": "2027-01-04T10:00:00Z",
}

TRAIN: Final = """\
schema = 1

[train]
name = "orchard"
version = "1.4.0.dev0"  # what grows here
previous = ""
departs = 2027-02-03
months = 2
owner = "Pomona"
python = ["3.11"]
pins = "compatible"
pages = ["README.md"]

[[phases]]
name = "land"
days = -28
what = "what is meant for this train is merged"

[[phases]]
name = "cut"
days = -14
what = "the branch is cut"
picks = ["regression", "critical", "docs"]

[[phases]]
name = "final"
days = -7
what = "only what would stop the train"
picks = ["critical"]

[[phases]]
name = "depart"
days = 0
what = "published"

[[gates]]
name = "check"

[[gates]]
name = "build"

[[gates]]
name = "inspect"

[hardware]
cpu = "any processor"
cuda = "NVIDIA"

[packages.orchard]
folder = "packages/orchard"
hardware = ["cpu"]
budget = "100 kB"
version_files = ["src/orchard/_version.py"]

[packages.orchard-press]
folder = "packages/press"
requires = ["orchard"]
hardware = ["cpu"]
wheels = ["py3-none-PLATFORM"]
contains = ["orchard_press/*.so"]
budget = "100 kB"

[packages.orchard-shop]
folder = "packages/shop"
requires = ["orchard", "orchard-press"]
hardware = ["cpu", "cuda"]
budget = "100 kB"
reverse = true
""".replace("PLATFORM", PLATFORM)

_PROJECT: Final = """\
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[project]
name = "{name}"
version = "1.4.0.dev0"
description = "{what}"
readme = "README.md"
license = "MIT"
requires-python = ">=3.11"
classifiers = [
  "Programming Language :: Python :: 3.11",
]
dependencies = [{dependencies}]
{more}
[tool.hatch.build.targets.wheel]
packages = ["src/{module}"]
"""

_HOOK: Final = """\
import pathlib
import subprocess
import tempfile

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class Compile(BuildHookInterface):
    def initialize(self, version, build_data):
        if self.target_name != "wheel":
            return
        self.folder = tempfile.TemporaryDirectory()
        library = pathlib.Path(self.folder.name, "libpress.so")
        words = ["-shared", "-fPIC", "-Wl,--build-id=none", "-o", str(library), "press.c"]
        subprocess.run(["cc", *words], cwd=self.root, check=True)
        build_data["pure_python"] = False
        build_data["tag"] = "py3-none-PLATFORM"
        build_data["force_include"][str(library)] = "orchard_press/libpress.so"
"""

_README: Final = """\
# Orchard

| package | folder |
| --- | --- |
| orchard | `packages/orchard` |
| orchard-press | `packages/press` |
| orchard-shop | `packages/shop` |

Install it with `pip install orchard-shop==1.4.0.dev0`.

<!-- train: packages -->
<!-- train: end -->
"""

_ROOT_PROJECT: Final = """\
[tool.towncrier]
directory = "changelog.d"
filename = "CHANGELOG.md"
start_string = "<!-- release notes start -->\\n"
issue_format = "{issue}"
underlines = ["", "", ""]

[[tool.towncrier.type]]
directory = "breaking"
name = "Breaking changes"
showcontent = true

[[tool.towncrier.type]]
directory = "added"
name = "New features"
showcontent = true

[[tool.towncrier.type]]
directory = "fixed"
name = "Bug fixes"
showcontent = true
"""

_NOX: Final = """\
import nox


@nox.session(tags=["pkg-orchard", "pkg-press", "pkg-shop", "hw-cpu"])
def tests(session):
    session.run("python", "-c", "print('ripe')", external=True)


@nox.session(tags=["hw-cuda"])
def hardware(session):
    session.error("UNVERIFIED: cuda: there is no such device here")
"""

_RUNBOOK: Final = """\
# Releasing

<!-- train: calendar -->
<!-- train: end -->

1. See what is due: `torchyard release plan`.
2. Cut: `torchyard release cut`.
"""

_FILES: Final = {
    ".gitignore": "__pycache__/\ndist/\n.nox/\n",
    "train.toml": TRAIN,
    "pyproject.toml": _ROOT_PROJECT,
    "README.md": _README,
    "RELEASE.md": _RUNBOOK,
    "noxfile.py": _NOX,
    "changelog.d/1.orchard.added.md": "Grow apples.\n",
    "changelog.d/2.press.fixed.md": "Press pears, too.\n",
    "packages/orchard/pyproject.toml": _PROJECT.format(
        name="orchard", what="Trees", dependencies="", more="", module="orchard"
    ),
    "packages/orchard/README.md": "# orchard\n",
    "packages/orchard/src/orchard/__init__.py": (
        '"""Trees."""\n\nfrom orchard._version import __version__\n\n'
        '__all__ = ["__version__", "grow"]\n\n\n'
        'def grow(kind: str, count: int = 1) -> list[str]:\n    """Grow fruit."""\n'
        "    return [kind] * count\n"
    ),
    "packages/orchard/src/orchard/_version.py": '__version__ = "1.4.0.dev0"\n',
    "packages/press/pyproject.toml": _PROJECT.format(
        name="orchard-press",
        what="Juice",
        dependencies='"orchard==1.4.0.dev0"',
        more='\n[tool.hatch.build.targets.wheel.hooks.custom]\npath = "hatch_build.py"\n',
        module="orchard_press",
    ),
    "packages/press/README.md": "# orchard-press\n",
    "packages/press/hatch_build.py": _HOOK,
    "packages/press/press.c": "int press(int apples) { return 3 * apples; }\n",
    "packages/press/src/orchard_press/__init__.py": (
        '"""Juice."""\n\nimport ctypes\nimport pathlib\n\n__all__ = ["press"]\n\n'
        '_library = ctypes.CDLL(str(pathlib.Path(__file__).with_name("libpress.so")))\n\n\n'
        'def press(apples: int) -> int:\n    """Return how much juice the apples give."""\n'
        "    return _library.press(apples)\n"
    ),
    "packages/shop/pyproject.toml": _PROJECT.format(
        name="orchard-shop",
        what="Sales",
        dependencies='"orchard==1.4.0.dev0", "orchard-press==1.4.0.dev0"',
        more='\n[project.scripts]\norchard = "orchard_shop:main"\n',
        module="orchard_shop",
    ),
    "packages/shop/README.md": "# orchard-shop\n",
    "packages/shop/src/orchard_shop/__init__.py": (
        '"""Sales."""\n\nfrom orchard import grow\nfrom orchard_press import press\n\n'
        '__all__ = ["main"]\n\n\ndef main() -> None:\n    """Sell juice."""\n'
        '    print("juice:", press(len(grow("apple", 2))))\n'
    ),
}


def make(root: Path, *, agreed: bool = False, only: str = "") -> Path:
    """Write the monorepo into a folder, as one commit on ``main``; return the folder.

    Args:
        root: the folder, which need not exist.
        agreed: whether what pages derive from train.toml is there already.
        only: the one package that it has; empty for all three.
    """
    root.mkdir(parents=True, exist_ok=True)
    git(root, "init", "--quiet", "--initial-branch=main")
    git(root, "config", "user.name", "Pomona")
    git(root, "config", "user.email", "pomona@orchard.example")
    files = _FILES if not only else _alone(only)
    for name, text in files.items():
        write(root, name, text.replace("PLATFORM", PLATFORM))
    if agreed:
        result = release(root, "check", "--write", "--no-nox")
        assert result.exit_code == 0, result.output
    git(root, "add", "--all")
    git(root, "commit", "--quiet", "--message=Plant the orchard")
    return root


def _alone(package: str) -> dict[str, str]:
    """Return the files of a monorepo with a single package."""
    folder = f"packages/{package}/"
    files = {
        name: text
        for name, text in _FILES.items()
        if not name.startswith(("packages/", "noxfile")) or name.startswith(folder)
    }
    head, *packages = TRAIN.split("[packages.")
    [kept] = [text for text in packages if text.startswith(f"{package}]")]
    files["train.toml"] = f"{head}[packages.{kept}"
    del files["changelog.d/2.press.fixed.md"]
    return files


def release(root: Path, *words: str) -> Result:
    """Run ``torchyard release`` in a monorepo."""
    # Wide, so that no test depends on where a table wraps.
    return CliRunner(env={"COLUMNS": "200"}).invoke(command, ["--root", str(root), *words])


def write(root: Path, name: str, text: str) -> Path:
    """Write a file of the monorepo."""
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def git(root: Path, *words: str) -> str:
    """Run git in the monorepo at a fixed time; return what it prints."""
    return subprocess.run(
        ["git", "-C", str(root), *words],
        check=True,
        capture_output=True,
        text=True,
        env={**os.environ, **_IDENTITY, "GIT_CONFIG_GLOBAL": os.devnull},
    ).stdout
