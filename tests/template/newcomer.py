"""A fresh environment that shares the packages of the running one, torch first among them.

What is installed into it stays in it, and nothing is fetched from anywhere: every requirement of a
generated project is there already, or the installation fails.
"""

from __future__ import annotations

import os
import site
import sys
import venv
from pathlib import Path

__all__ = ["Newcomer"]

# Those that are binaries, such as ruff, are found in the running environment.
_PROGRAMS = ("copier", "mypy", "pip", "pytest", "torchyard")


class Newcomer:
    """A newcomer's environment.

    Args:
        folder: where it is made.
    """

    def __init__(self, folder: Path) -> None:
        self._programs = folder / "bin"
        venv.create(folder, symlinks=True)
        python = self._programs / "python"
        version = f"python{sys.version_info.major}.{sys.version_info.minor}"
        packages = folder / "lib" / version / "site-packages"
        # addsitedir, unlike a plain line, follows the .pth files of what it adds.
        lines = [f"import site; site.addsitedir({name!r})" for name in site.getsitepackages()]
        (packages / "shared.pth").write_text("\n".join([*lines, ""]))
        for name in _PROGRAMS:
            program = self._programs / name
            program.write_text(f'#!/bin/sh\nexec "{python}" -m {name} "$@"\n')
            program.chmod(0o755)

    def environment(self, **settings: str) -> dict[str, str]:
        """Return the environment's variables: no setting of torchyard's, pytest's or Python's."""
        ours = ("TORCHYARD_", "PYTEST_", "PYTHON", "PIP_", "TORCH_DEVICE_BACKEND")
        kept = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
        return {
            **kept,
            "PATH": os.pathsep.join(
                [str(self._programs), str(Path(sys.executable).parent), os.environ["PATH"]]
            ),
            "PIP_NO_INDEX": "1",
            # pip reads this as "build isolation: no".
            "PIP_NO_BUILD_ISOLATION": "false",
            "PIP_DISABLE_PIP_VERSION_CHECK": "1",
            "NO_COLOR": "1",
            "COLUMNS": "160",
            **settings,
        }
