"""A clean room: an environment with installed packages alone and nothing of a checkout."""

from __future__ import annotations

import json
import subprocess
import sys
import venv
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from packaging.utils import canonicalize_name

from torchyard import child_environ
from torchyard_release._errors import ReleaseError

# A checkout on the path, a user's own packages and somebody's pins: none of them is a user's
# fresh machine. Where pip looks for other packages stays as its configuration says.
_REMOVED: Final = (
    *("PIP_BUILD_CONSTRAINT", "PIP_CONSTRAINT", "PIP_REQUIREMENT", "PIP_TARGET", "PIP_USER"),
    *("PYTHONHOME", "PYTHONPATH", "VIRTUAL_ENV"),
)
_SMOKE: Final = Path(__file__).with_name("_smoke.py")
_KEPT_LINES: Final = 30


class InstallError(ReleaseError):
    """What was asked for cannot be installed."""


@dataclass(frozen=True, slots=True)
class Installed:
    """A distribution that an installer put into a room.

    Attributes:
        name: normalised.
        version: of it.
        url: where it came from.
        sha256: of the file that it came from; empty where the installer does not say.
    """

    name: str
    version: str
    url: str
    sha256: str


@dataclass(frozen=True, slots=True)
class CleanRoom:
    """An environment.

    Attributes:
        folder: where it is.
        base: a room whose packages it sees as well: such as torch, which many rooms need and which
            is large. Only what brings nothing of the train belongs in there.
    """

    folder: Path
    base: CleanRoom | None = None

    @property
    def python(self) -> Path:
        """Its interpreter."""
        return self.folder / "bin" / "python"

    @property
    def site(self) -> Path:
        """Where its packages are."""
        version = f"python{sys.version_info.major}.{sys.version_info.minor}"
        return self.folder / "lib" / version / "site-packages"

    def make(self) -> CleanRoom:
        """Make it, empty, in the place of whatever was there."""
        venv.EnvBuilder(clear=True, symlinks=True).create(self.folder)
        if self.base is not None:
            (self.site / "base.pth").write_text(f"{self.base.site}\n", encoding="utf-8")
        return self

    def install(
        self, *requirements: str, overlay: str = "", pins: Sequence[str] = ()
    ) -> tuple[Installed, ...]:
        """Install by pip, wheels only, and return what it put there.

        Args:
            requirements: what is asked for.
            overlay: the address of an index to look at besides those that pip is configured with.
            pins: further requirements that hold only for what is installed anyway.

        Raises:
            InstallError: pip refused; its own words are in the message.
        """
        report, constraints = self.folder / "report.json", self.folder / "constraints.txt"
        constraints.write_text("".join(f"{pin}\n" for pin in pins), encoding="utf-8")
        # What is imported is compiled then; all of torch takes longer than everything else here.
        words = ["install", "--quiet", "--no-compile", "--only-binary=:all:"]
        words += ["--report", str(report)]
        words += ["--constraint", str(constraints), "--no-input", "--no-warn-script-location"]
        words += ["--extra-index-url", overlay] if overlay else []
        done = self._pip(*words, *requirements)
        if done.returncode:
            said = "\n".join(_errors(done.stderr) or _errors(done.stdout)) or "nothing"
            raise InstallError(
                f"pip install {' '.join(requirements)}: ended with {done.returncode}: {said}",
                "correct the requirements in that package's pyproject.toml, or make the index "
                "that pip is configured with have what is missing",
            )
        items = json.loads(report.read_text(encoding="utf-8"))["install"]
        return tuple(
            Installed(
                canonicalize_name(item["metadata"]["name"]),
                item["metadata"]["version"],
                item["download_info"]["url"],
                item["download_info"].get("archive_info", {}).get("hashes", {}).get("sha256", ""),
            )
            for item in items
        )

    def check(self) -> tuple[str, ...]:
        """Return what pip finds inconsistent."""
        done = self._pip("check")
        return tuple(done.stdout.splitlines()) if done.returncode else ()

    def smoke(self, names: Sequence[str]) -> dict[str, list[str]]:
        """Import distributions and load their commands; return what is wrong with which."""
        done = self.run(
            *("-c", _SMOKE.read_text(encoding="utf-8"), str(self.site), *names), isolated=True
        )
        try:
            answer = json.loads(done.stdout.splitlines()[-1])
        except (IndexError, ValueError):
            said = (done.stderr or done.stdout).splitlines()[-_KEPT_LINES:]
            ended = [f"its import ended Python ({done.returncode})", *said]
            answer = dict.fromkeys(names, ended)
        return {name: wrong for name, wrong in answer.items() if wrong}

    def run(
        self, *words: str, isolated: bool = False, environ: Mapping[str, str | None] | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run its interpreter in an empty folder and return what came.

        Args:
            words: after ``python``.
            isolated: by ``-I``, which no variable reaches.
            environ: variables that are set besides, or removed.
        """
        # Not in the caller's folder: a checkout there would be found first.
        elsewhere = self.folder / "elsewhere"
        elsewhere.mkdir(exist_ok=True)
        return subprocess.run(
            [str(self.python), *(["-I"] if isolated else []), *words],
            cwd=elsewhere,
            capture_output=True,
            text=True,
            env=child_environ(
                {**dict.fromkeys(_REMOVED), "PYTHONNOUSERSITE": "1", **(environ or {})}
            ),
        )

    def _pip(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "pip", "--python", str(self.python), *words],
            capture_output=True,
            text=True,
            env=child_environ({**dict.fromkeys(_REMOVED), "PIP_DISABLE_PIP_VERSION_CHECK": "1"}),
        )


def strangers(
    installed: Sequence[Installed], names: Collection[str], sums: Mapping[str, str]
) -> list[str]:
    """Return which of the train's packages are not the candidate's bytes, and where they are from.

    Args:
        installed: what was installed.
        names: the train's distributions, normalised.
        sums: file name -> sha256 of the candidate.
    """
    known = set(sums.values())
    return [
        f"{item.name} {item.version} is not the candidate's: it came from {item.url}"
        for item in installed
        if item.name in names and item.sha256 not in known
    ]


def _errors(text: str) -> list[str]:
    lines = [line for line in text.splitlines() if line.strip() and "WARNING" not in line]
    return lines[-_KEPT_LINES:]
