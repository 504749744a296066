"""A target of somebody else's plugin that computes GRUs with the reset gate in the wrong place."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from torch.export import ExportedProgram

from torchyard_export import _api
from torchyard_export._audit import suspects
from torchyard_export._find_target import find_target
from torchyard_export.contract import ExportRequest, Target


class Lying:
    """Runs the program with another formula; its file does not say so."""

    native = False

    def export(self, program: ExportedProgram, folder: Path) -> Mapping[str, bytes]:
        """Keep the program, and return no more than a name."""
        self._module = program.module()
        return {"lie": b"gru"}

    def load(
        self, files: Mapping[str, bytes], folder: Path
    ) -> Callable[[Sequence[Any]], Sequence[Any]]:
        """Return the wrong computation."""
        assert isinstance(self._module, torch.fx.GraphModule)
        run = suspects._Mistaken(self._module)
        return lambda leaves: [run.run(*leaves)]

    def versions(self) -> Mapping[str, str]:
        """Return nothing."""
        return {}

    def findings(self, files: Mapping[str, bytes]) -> Iterable[tuple[str, str]]:
        """Admit nothing."""
        return ()


@contextmanager
def offered() -> Iterator[None]:
    """Offer the target as ``lying.reset`` beside those that are installed."""

    def find(name: str, request: ExportRequest) -> Target:
        return Lying() if name == "lying.reset" else find_target(name, request)

    with mock.patch.object(_api, "find_target", find):
        yield
