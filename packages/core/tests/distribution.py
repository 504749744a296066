"""Distributions written by hand: what an installer would leave in a site folder."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from textwrap import dedent

from torchyard._plugins.installed import installed_sources

MANIFEST = "torchyard.toml"


@dataclass(frozen=True, slots=True)
class Distribution:
    """A distribution that announces one plugin.

    Attributes:
        name: the distribution's name.
        plugin: the plugin's name, as its entry point says it.
        package: its import package.
        files: path inside the site folder to text.
        version: its version.
    """

    name: str
    plugin: str
    package: str
    files: Mapping[str, str]
    version: str = "1.0"

    def install(self, site: Path) -> None:
        """Write the package and its metadata, as an installer would."""
        info = site / f"{self.name.replace('-', '_')}-{self.version}.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(
            f"Metadata-Version: 2.1\nName: {self.name}\nVersion: {self.version}\n"
        )
        (info / "entry_points.txt").write_text(
            f"[torchyard.plugins]\n{self.plugin} = {self.package}:{MANIFEST}\n"
        )
        for name, text in {f"{self.package}/__init__.py": "", **self.files}.items():
            path = site / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(dedent(text).lstrip("\n"))


def run(
    program: list[str], site: Path, *, settings: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a program of this interpreter with a site folder of its own.

    No TORCHYARD_* setting of the environment holds, and plugins that happen to be installed in it
    are switched off.
    """
    kept = {name: value for name, value in os.environ.items() if not name.startswith("TORCHYARD_")}
    path = os.pathsep.join(filter(None, [str(site), os.environ.get("PYTHONPATH", "")]))
    environ = {
        **kept,
        "PYTHONPATH": path,
        "TORCHYARD_CONFIG": str(site / "config.toml"),
        **(settings or {}),
    }
    (site / "config.toml").touch()
    others = [f"-{source.name}" for source in installed_sources()]
    lists = filter(None, [environ.get("TORCHYARD_PLUGINS", ""), *others])
    return subprocess.run(
        [sys.executable, *program],
        env={**environ, "TORCHYARD_PLUGINS": ",".join(lists)},
        capture_output=True,
        text=True,
        timeout=600,
    )


def torchyard(
    *arguments: str, site: Path, settings: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run the ``torchyard`` command with a site folder."""
    return run(["-m", "torchyard", *arguments], site, settings=settings)
