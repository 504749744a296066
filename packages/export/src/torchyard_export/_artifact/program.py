"""Programs as bytes, and as something that runs."""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import torch
from torch.export import ExportedProgram

from torchyard_export import _ops
from torchyard_export._artifact.vetting import NAMESPACES, vet
from torchyard_export._errors import ArtifactError
from torchyard_export._torch_compat import (
    pytree,
    register_rounding,
    with_example_inputs,
    without_size_guards,
)


def save_program(program: ExportedProgram) -> bytes:
    """Return a program as bytes, without example inputs, which torch would pickle."""
    bare = with_example_inputs(program, None)
    buffer = io.BytesIO()
    with without_futures():
        torch.export.save(bare, buffer)
    return buffer.getvalue()


def load_program(data: bytes, *, namespaces: frozenset[str] = NAMESPACES) -> ExportedProgram:
    """Return the program in a file's bytes.

    Raises:
        ArtifactError: the file holds what torch would unpickle, evaluate or call besides.
    """
    # Our own are registered by the import above.
    assert _ops.NAMESPACE in NAMESPACES
    import_operators(data)
    with without_futures():
        program: ExportedProgram = torch.export.load(io.BytesIO(vet(data, namespaces=namespaces)))
    return program


def import_operators(data: bytes) -> None:
    """Import those packages of this tree whose operators a program calls, by the operators' names.

    Raises:
        ArtifactError: one of them is not installed.
    """
    if b"torch.ops.quantized_decomposed." in data or b'"quantized_decomposed::' in data:
        register_rounding()
    for name in sorted(NAMESPACES):
        if not name.startswith("torchyard_"):
            continue
        if f"torch.ops.{name}.".encode() in data or f'"{name}::'.encode() in data:
            if find_spec(name) is None:
                package = name.replace("_", "-")
                raise ArtifactError(
                    f"program: calls operators of {name}, which is not installed; "
                    f"pip install {package}"
                )
            import_module(name)


def decompose(program: ExportedProgram) -> ExportedProgram:
    """Return the program in torch's core operators; ours stay as they are."""
    with without_futures(), without_size_guards():
        lowered: ExportedProgram = program.run_decompositions()
    return lowered


def program_runner(program: ExportedProgram) -> Callable[[Sequence[Any]], Sequence[Any]]:
    """Return what runs a program: leaves of the inputs -> leaves of the outputs."""
    with without_futures():
        module = program.module()
    spec = program.call_spec.in_spec

    def run(leaves: Sequence[Any]) -> Sequence[Any]:
        args, kwargs = pytree.tree_unflatten(list(leaves), spec)
        return list(pytree.tree_leaves(module(*args, **kwargs)))

    return run


@contextmanager
def without_futures() -> Iterator[None]:
    """Keep back what torch's own code warns itself of."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        yield
