"""torch's own form of a program, with aten's recurrent functions: it runs without this package."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import torch
from torch.export import ExportedProgram
from torch.fx import Node

from torchyard_export._artifact.program import (
    load_program,
    program_runner,
    save_program,
    without_futures,
)
from torchyard_export._torch_compat import with_module
from torchyard_export.contract import TargetError

__all__ = ["Aten"]

_FILE: Final = "program.pt2"
_ATEN: Final = torch.ops.aten


class Aten:
    """Put ``aten::lstm`` and its siblings in the place of our ops, and save.

    ``torch.export.load`` reads the file where torch alone is installed, and time stays dynamic. It
    is a last form: a further ``run_decompositions`` would write the layers out over time.
    """

    native = False

    def export(self, program: ExportedProgram, folder: Path) -> Mapping[str, bytes]:
        """Return the file; TargetError for a packed sequence, which needs our op."""
        return {_FILE: save_program(_plain(program))}

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


def _plain(program: ExportedProgram) -> ExportedProgram:
    with without_futures():
        module = copy.deepcopy(program.graph_module)
    for node in list(module.graph.nodes):
        if node.op == "call_function" and str(node.target).startswith("torchyard_export."):
            _replace(node)
    module.recompile()
    return with_module(program, module)


def _replace(node: Node) -> None:
    input, lengths, *rest = node.args
    if lengths is not None:
        raise TargetError(
            "expected padded sequences; a packed one has lengths, which aten's functions take in "
            "packed data alone: use the target pt2"
        )
    words = [*rest]
    kind = str(node.target).split(".")[1]
    if kind == "lstm":
        h0, c0, weights, biases, layers, both = words
        node.target = _ATEN.lstm.input
        states: Any = [h0, c0]
    elif kind == "gru":
        states, weights, biases, layers, both = words
        node.target = _ATEN.gru.input
    else:
        states, weights, biases, layers, both, nonlinearity = words
        node.target = _ATEN.rnn_tanh.input if nonlinearity == "tanh" else _ATEN.rnn_relu.input
    node.args = (input, states, weights, biases, layers, 0.0, False, both, False)
    node.kwargs = {}
