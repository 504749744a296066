"""torch's own form of a program, ``.pt2``, without a pickle."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import torch
from torch.export import ExportedProgram

from torchyard_export._artifact.program import load_program, program_runner, save_program

__all__ = ["Pt2"]

_FILE: Final = "program.pt2"


class Pt2:
    """Save a program as ``torch.export.save`` does; load it only if nothing in it is a pickle."""

    native = False

    def export(self, program: ExportedProgram, folder: Path) -> Mapping[str, bytes]:
        """Return the file ``program.pt2``; ``torch.export.load`` reads it too."""
        return {_FILE: save_program(program)}

    def load(
        self, files: Mapping[str, bytes], folder: Path
    ) -> Callable[[Sequence[Any]], Sequence[Any]]:
        """Return what runs the program; ArtifactError where it holds more than a program."""
        return program_runner(load_program(files[_FILE]))

    def versions(self) -> Mapping[str, str]:
        """Return torch's version alone."""
        return {"torch": torch.__version__}

    def findings(self, files: Mapping[str, bytes]) -> Iterable[tuple[str, str]]:
        """Return nothing: what is in the file is what was verified."""
        return ()
