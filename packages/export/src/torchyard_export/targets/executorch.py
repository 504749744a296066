"""ExecuTorch: a program for small devices, run here by its own runtime with portable kernels."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

import torch
from executorch.exir import ExecutorchBackendConfig, to_edge
from executorch.runtime import Runtime, Verification
from torch import Tensor
from torch.export import ExportedProgram

from torchyard_export._capture.trace import input_values
from torchyard_export._torch_compat import OpOverload
from torchyard_export.contract import TargetError
from torchyard_export.targets._own_operators import check_own_operators
from torchyard_export.targets._scanned import DECOMPOSITIONS

__all__ = ["ExecuTorch"]

_FILE: Final = "model.pte"
# Views are copies: a view of what is dynamic, such as a state of one step, may itself be static,
# which ExecuTorch refuses.
_CONFIG: Final = ExecutorchBackendConfig(remove_view_copy=False)


class ExecuTorch:
    """A ``.pte`` of ExecuTorch's portable operators; recurrent layers are loops over time in it.

    Its memory is planned for the greatest sizes, so each dimension needs one.
    """

    native = False

    def export(self, program: ExportedProgram, folder: Path) -> Mapping[str, bytes]:
        """Return the file ``model.pte``, weights inside.

        Raises:
            TargetError: a dimension has no greatest size, ExecuTorch refuses, or its runtime lacks
                an operator.
        """
        _check_bounds(program)
        check_own_operators(program, DECOMPOSITIONS, "ExecuTorch")
        try:
            with torch.no_grad(), _quiet():
                if any(node.target in DECOMPOSITIONS for node in program.graph.nodes):
                    lowered = program.run_decompositions(dict(DECOMPOSITIONS))
                    _check_dynamic(program, lowered)
                    program = lowered
                made = to_edge(program).to_executorch(_CONFIG)
        except TargetError:
            raise
        except Exception as error:
            raise TargetError(f"ExecuTorch refuses: {_first_line(error)}") from error
        _check_operators(made.exported_program())
        return {_FILE: bytes(made.buffer)}

    def load(
        self, files: Mapping[str, bytes], folder: Path
    ) -> Callable[[Sequence[Any]], Sequence[Any]]:
        """Return what runs the program; TargetError where the file is not one."""
        try:
            program = Runtime.get().load_program(
                files[_FILE], verification=Verification.InternalConsistency
            )
            method = program.load_method("forward")
        except RuntimeError as error:
            raise TargetError(f"{_FILE}: expected a program: {_first_line(error)}") from error
        if method is None:
            raise TargetError(f"{_FILE}: expected a method 'forward', found none")

        def run(leaves: Sequence[Any]) -> Sequence[Any]:
            # Its kernels read tensors in the order of their axes alone.
            given = [
                leaf.detach().contiguous() if isinstance(leaf, Tensor) else leaf for leaf in leaves
            ]
            try:
                return list(method.execute(given))
            except RuntimeError as error:
                raise TargetError(f"ExecuTorch's runtime refuses: {_first_line(error)}") from error

        return run

    def versions(self) -> Mapping[str, str]:
        """Return what made the program and runs it."""
        return {"executorch": version("executorch")}

    def findings(self, files: Mapping[str, bytes]) -> Iterable[tuple[str, str]]:
        """Return nothing: what is in the file is what was verified."""
        return ()


def _check_bounds(program: ExportedProgram) -> None:
    for name, value in input_values(program):
        if not isinstance(value, Tensor):
            continue
        sizes: tuple[Any, ...] = value.shape
        for axis, size in enumerate(sizes):
            if isinstance(size, torch.SymInt):
                bounds = program.range_constraints.get(size.node.expr)
                if bounds is None or not bounds.upper.is_Integer or int(bounds.upper) >= 2**31:
                    raise TargetError(
                        f"{name}[{axis}]: expected a greatest size, for which ExecuTorch plans its "
                        "memory, got none; give the dimension a range, such as 'time:1..1000'"
                    )


def _check_dynamic(program: ExportedProgram, lowered: ExportedProgram) -> None:
    for (name, before), (_, after) in zip(
        input_values(program), input_values(lowered), strict=True
    ):
        sizes: tuple[Any, ...] = getattr(before, "shape", ())
        for axis, size in enumerate(sizes):
            if isinstance(size, torch.SymInt) and not isinstance(after.shape[axis], torch.SymInt):
                raise TargetError(
                    f"{name}[{axis}]: expected a size that stays free, got {after.shape[axis]} "
                    "alone when recurrent layers became loops"
                )


def _check_operators(program: ExportedProgram) -> None:
    has = Runtime.get().operator_registry.operator_names
    wanted = {
        str(node.target.name())  # type: ignore[no-untyped-call]
        for module in program.graph_module.modules()
        if isinstance(module, torch.fx.GraphModule)
        for node in module.graph.nodes
        if node.op == "call_function" and isinstance(node.target, OpOverload)
    }
    missing = sorted(name for name in wanted if name not in has)
    if missing:
        raise TargetError(
            f"expected operators of ExecuTorch's runtime, got {', '.join(missing)}, which it lacks"
        )


@contextmanager
def _quiet() -> Iterator[None]:
    previous = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(previous)


def _first_line(error: BaseException) -> str:
    lines = [line for line in str(error).splitlines() if line.strip()] or [""]
    return f"{type(error).__name__}: {lines[0][:300]}"
