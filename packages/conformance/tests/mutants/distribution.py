"""Distributions written by hand, and environments of their own to install them into."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import site
import subprocess
import sys
import sysconfig
import venv
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from textwrap import dedent

from torchyard import child_environ
from torchyard_conformance import Report

# Other plugins' devices are no part of it, and several run at once.
_SETTINGS = {"OMP_NUM_THREADS": "1", "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}


@dataclass(frozen=True, slots=True)
class Distribution:
    """A distribution that announces one plugin.

    Attributes:
        plugin: the plugin's name; the distribution is called ``torchyard-<name>``.
        files: path inside the site folder to text.
        requires: what it requires.
    """

    plugin: str
    files: tuple[tuple[str, str], ...]
    requires: tuple[str, ...] = ()

    @property
    def package(self) -> str:
        """Its import package."""
        return f"torchyard_{self.plugin}".replace("-", "_")

    def install(self, folder: Path) -> None:
        """Write the files and the metadata, as an installer would."""
        info = f"{self.package}-1.0.dist-info"
        texts = {
            f"{info}/METADATA": f"Metadata-Version: 2.1\nName: torchyard-{self.plugin}\n"
            f"Version: 1.0\n{''.join(f'Requires-Dist: {line}{chr(10)}' for line in self.requires)}",
            f"{info}/entry_points.txt": "[torchyard.plugins]\n"
            f"{self.plugin} = {self.package}:torchyard.toml\n",
            f"{self.package}/__init__.py": "",
            **{name: dedent(text).lstrip("\n") for name, text in self.files},
        }
        rows = []
        for name, text in texts.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
            digest = base64.urlsafe_b64encode(hashlib.sha256(path.read_bytes()).digest())
            rows.append(f"{name},sha256={digest.rstrip(b'=').decode()},{path.stat().st_size}")
        rows.append(f"{info}/RECORD,,")
        (folder / info / "RECORD").write_text("\n".join(rows) + "\n", encoding="utf-8")


@dataclass(frozen=True, slots=True)
class Environment:
    """A virtual environment that has what this one has, and more.

    Attributes:
        folder: where it is.
    """

    folder: Path

    @classmethod
    def make(cls, folder: Path, *distributions: Distribution) -> Environment:
        """Make an environment with some distributions installed."""
        venv.EnvBuilder(symlinks=True).create(folder)
        made = cls(folder)
        # addsitedir and not a path alone, for what is installed editable here.
        found = [*site.getsitepackages(), sysconfig.get_path("platlib")]
        lines = [f"import site; site.addsitedir({path!r})" for path in dict.fromkeys(found)]
        (made.site / "zz_parent.pth").write_text("\n".join(lines) + "\n", encoding="utf-8")
        for distribution in distributions:
            distribution.install(made.site)
        return made

    @property
    def site(self) -> Path:
        """Its folder of installed packages."""
        version = f"python{sys.version_info.major}.{sys.version_info.minor}"
        return self.folder / "lib" / version / "site-packages"

    def run(
        self, *arguments: str, settings: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run its interpreter."""
        return subprocess.run(
            [str(self.folder / "bin" / "python"), *arguments],
            env=child_environ({**_SETTINGS, **(settings or {})}),
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=600,
        )

    def certify(self, *arguments: str) -> tuple[int, Report]:
        """Run ``torchyard certify``; return its status and its report."""
        result = self.run("-m", "torchyard", "certify", *arguments, "--json")
        if not result.stdout:
            raise AssertionError(f"{os.linesep}{result.stderr}")
        return result.returncode, Report.from_json(json.loads(result.stdout))
