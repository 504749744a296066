"""The commands that build one package, and the log of what they say."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NoReturn

from torchyard import child_environ
from torchyard_release._errors import ReleaseError

__all__ = ["BuildError", "Steps"]

# Of the log of a build that failed, in the message.
_LINES: Final = 15


class BuildError(ReleaseError):
    """A package could not be built."""


@dataclass(frozen=True, slots=True)
class Steps:
    """Runs modules of this Python one after another.

    Attributes:
        source: the folder where they run.
        package: the name of what is built.
        log: the file for what they say.
        umask: theirs.
        changes: of the environment; None removes a variable.
    """

    source: Path
    package: str
    log: Path
    umask: int
    changes: Mapping[str, str | None]

    def run(self, *words: str, environ: Mapping[str, str] | None = None) -> None:
        """Run one.

        Args:
            words: the module and its arguments.
            environ: further changes of the environment.

        Raises:
            BuildError: it failed; the message has the end of the log.
        """
        with self.log.open("ab") as file:
            code = subprocess.run(
                [sys.executable, "-m", *words],
                cwd=self.source,
                stdout=file,
                stderr=subprocess.STDOUT,
                env=child_environ({**self.changes, **(environ or {})}),
                umask=self.umask,
            ).returncode
        if code:
            self.fail(f"ended with {code}")

    def fail(self, how: str) -> NoReturn:
        """Raise BuildError, with the end of the log."""
        end = "\n".join(self.log.read_text(errors="replace").splitlines()[-_LINES:])
        raise BuildError(
            f"{self.package}: building it {how}:\n{end}",
            f"the whole log is {self.log}; fix it on the branch, then "
            f"`torchyard release cut --candidate`",
        )
