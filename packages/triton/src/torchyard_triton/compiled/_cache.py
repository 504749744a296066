"""Figures of kernels that were compiled before, by the hash of all that they depend on."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict
from pathlib import Path

from torchyard_triton.compiled._figures import Figures

__all__ = ["FiguresCache", "digest"]


def digest(*parts: str) -> str:
    """Return a key of texts: of the kernel's source, of the target, of what reads its code."""
    here = Path(__file__).parent
    readers = [
        here.joinpath(name).read_text(encoding="utf-8")
        for name in ("_compilation.py", "_figures.py", "_occupancy.py")
    ]
    return hashlib.sha256(json.dumps([*parts, *readers]).encode()).hexdigest()


class FiguresCache:
    """A folder with a file for each compiled kernel.

    Args:
        folder: made where it is missing; None keeps nothing.
    """

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)

    def read(self, key: str) -> Figures | None:
        """Return what was written under a key; None where nothing was."""
        if self._folder is None:
            return None
        try:
            text = (self._folder / f"{key}.json").read_text(encoding="utf-8")
        except FileNotFoundError:
            return None
        return Figures(**json.loads(text))

    def write(self, key: str, figures: Figures) -> None:
        """Keep figures; a file is there whole or not at all."""
        if self._folder is None:
            return
        part = self._folder / f"{key}.part"
        part.write_text(json.dumps(asdict(figures)), encoding="utf-8")
        part.replace(self._folder / f"{key}.json")
