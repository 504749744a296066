"""Recording a model as a program, and what stops it, by name and line."""

from __future__ import annotations

import logging
import re
import sys
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, redirect_stderr
from io import StringIO
from typing import TYPE_CHECKING, Any, Final

import torch
from torch import Tensor, nn
from torch.export import ExportedProgram

from torchyard_export._capture.dimension import Dynamic, torch_shapes
from torchyard_export._capture.frames import is_users, raising_line
from torchyard_export._capture.inner_tensors import with_inner_tensors
from torchyard_export._capture.observer import BRANCHES, Observer
from torchyard_export._capture.recurrent import recording
from torchyard_export._errors import ExportError
from torchyard_export._finding import Finding, FindingKind
from torchyard_export._torch_compat import user_error
from torchyard_export._tree import flatten

if TYPE_CHECKING:
    from torch.fx.experimental.symbolic_shapes import ShapeEnv


# Recurrent layers also have their parameters in a list; restoring that list is no change.
_FLAT_WEIGHTS: Final = re.compile(r"The tensor attributes? .*_flat_weights")


def record(
    model: nn.Module,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    dynamic: Dynamic,
) -> tuple[ExportedProgram, Observer, list[Finding]]:
    """Record a model as a program with the dimensions that were asked for.

    Returns:
        The program, what was observed, and findings that do not stop recording.

    Raises:
        ExportError: with findings that name the user's lines.
    """
    # Not before something is recorded: importing them takes longer than torch itself.
    from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode

    observer = Observer()
    try:
        program = _export(model, args, kwargs, torch_shapes(dynamic), observer)
    except (user_error(), GuardOnDataDependentSymNode) as error:
        raise ExportError(tuple(_explain(error, observer, model, args, kwargs, dynamic))) from error
    except Exception as error:
        raise ExportError((_other(error, observer),)) from error
    findings = _baked(observer)
    findings += shape_findings(program, dynamic, observer)
    return program, observer, findings


def shape_findings(
    program: ExportedProgram, dynamic: Dynamic, observer: Observer | None = None
) -> list[Finding]:
    """Compare the dimensions that a program has with those that were asked for."""
    findings = []
    symbols: dict[str, str] = {}
    for (path, value), named in zip(input_values(program), dynamic.leaves, strict=True):
        for axis, name in named.items():
            asked = dynamic.dimensions[name]
            size = value.shape[axis]
            place = f"{path}[{axis}]"
            if not isinstance(size, torch.SymInt) or size.node.expr.is_number:
                text = f"{place}: expected {asked}, but the program takes {int(size)} alone"
                findings.append(
                    Finding(
                        FindingKind.SPECIALISED_DIMENSION, text, _line(observer, place, value, axis)
                    )
                )
                continue
            expression = size.node.expr
            symbol = str(expression)
            other = symbols.setdefault(symbol, name)
            if other != name:
                text = f"{place}: expected {asked}, but the program takes what {other!r} is alone"
                findings.append(
                    Finding(FindingKind.SPECIALISED_DIMENSION, text, _guard_line(observer, symbol))
                )
            low, high = _range(program, size)
            if low > asked.min or (high is not None and (asked.max is None or high < asked.max)):
                got = f"{low}..{'' if high is None else high}"
                findings.append(
                    Finding(
                        FindingKind.NARROWED_DIMENSION,
                        f"{place}: expected {asked}, but the program takes {got} alone",
                        _guard_line(observer, symbol),
                    )
                )
    return findings


def input_values(program: ExportedProgram) -> list[tuple[str, Any]]:
    """Return the name and the recorded value of each leaf of a program's inputs, in order."""
    placeholders = {node.name: node for node in program.graph.nodes if node.op == "placeholder"}
    found = []
    for spec in program.graph_signature.input_specs:
        if spec.kind is torch.export.graph_signature.InputKind.USER_INPUT:
            node = placeholders.get(getattr(spec.arg, "name", ""))
            value = node.meta.get("val") if node is not None else None
            found.append((str(getattr(spec.arg, "name", "")), value))
    return found


def _export(
    model: nn.Module,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    shapes: dict[str, Any],
    observer: Observer,
) -> ExportedProgram:
    with warnings.catch_warnings(), _quiet(), _without_graph(), recording(), observer:
        warnings.filterwarnings("ignore", message=_FLAT_WEIGHTS.pattern)
        model = with_inner_tensors(model)
        return torch.export.export(model, args, dict(kwargs), dynamic_shapes=shapes, strict=False)


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep back what torch logs of a failure: the findings say it."""
    logger = logging.getLogger("torch.fx.experimental.symbolic_shapes")
    logger.addFilter(_keep_back)
    try:
        yield
    finally:
        logger.removeFilter(_keep_back)


@contextmanager
def _without_graph() -> Iterator[None]:
    """Keep back the graph that torch prints of a program that failed; all else is printed."""
    text, printed = "", StringIO()
    try:
        with redirect_stderr(printed):
            yield
    except Exception as error:
        if hasattr(error, "partial_fx_graph"):
            text = f"{error.partial_fx_graph}\n"
        raise
    finally:
        sys.stderr.write(printed.getvalue().replace(text, ""))


def _keep_back(record: logging.LogRecord) -> bool:
    return record.levelno >= logging.ERROR


def _explain(
    error: Exception,
    observer: Observer,
    model: nn.Module,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    dynamic: Dynamic,
) -> list[Finding]:
    from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode

    if isinstance(error, GuardOnDataDependentSymNode):
        return [_data_dependent(error, observer)]
    if "Constraints violated" not in str(error):
        return [_other(error, observer)]
    # Recorded again without demands, the program says which sizes it fixed, and where.
    again = Observer()
    try:
        program = _export(model, args, kwargs, torch_shapes(dynamic, automatic=True), again)
    except Exception as second:
        return [_other(second, again)]
    findings = [
        finding
        for finding in shape_findings(program, dynamic, again)
        # Without demands a range begins at 2: only what the code demands is its own.
        if finding.kind is not FindingKind.NARROWED_DIMENSION or finding.where
    ]
    return findings or [
        Finding(FindingKind.SPECIALISED_DIMENSION, _first_lines(error), raising_line(error))
    ]


def _data_dependent(error: Exception, observer: Observer) -> Finding:
    name, line, _ = observer.questions[-1] if observer.questions else ("", "", False)
    blamed = raising_line(error) or line
    number = bool(name) and name not in BRANCHES and line == blamed
    if number:
        text = f"{name} of a tensor becomes a Python number, which differs between calls"
        return Finding(FindingKind.PYTHON_NUMBER, text, blamed)
    text = "the line decides by values of a tensor, and a program records one way alone"
    return Finding(FindingKind.DATA_DEPENDENT_BRANCH, text, blamed)


def _baked(observer: Observer) -> list[Finding]:
    return [
        Finding(
            FindingKind.DATA_DEPENDENT_BRANCH if name in BRANCHES else FindingKind.PYTHON_NUMBER,
            f"{name} of a tensor gave a plain number while recording, and the program holds it",
            line,
        )
        for name, line, plain in observer.questions
        if plain and line
    ]


def _other(error: Exception, observer: Observer) -> Finding:
    return Finding(FindingKind.NOT_TRACEABLE, _first_lines(error), raising_line(error))


def _first_lines(error: Exception) -> str:
    lines = [line for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {' '.join(lines[:2])[:500]}"


def _range(program: ExportedProgram, size: torch.SymInt) -> tuple[int, int | None]:
    bounds = program.range_constraints.get(size.node.expr)
    if bounds is None:
        env = size.node.shape_env
        bounds = env.bound_sympy(size.node.expr)
    low, high = bounds.lower, bounds.upper
    return int(low), int(high) if high.is_finite and high.is_Integer and int(high) < 2**62 else None


def _line(observer: Observer | None, place: str, value: Tensor, axis: int) -> str:
    """Return the line that fixed a size: where a symbol became a number."""
    env = observer.shapes if observer is not None else None
    if env is None:
        return ""
    number = int(value.shape[axis])
    fixed = [
        symbol
        for symbol, found in env.replacements.items()
        if found.is_number and int(found) == number
    ]
    for symbol in fixed:
        if line := _guard_line(observer, str(symbol)):
            return line
    return ""


def _guard_line(observer: Observer | None, symbol: str) -> str:
    env: ShapeEnv | None = observer.shapes if observer is not None else None
    if env is None or observer is None:
        return ""
    for index, guard in enumerate(env.guards):
        if symbol in {str(found) for found in guard.expr.free_symbols}:
            frame = getattr(guard.sloc, "framework_loc", None)
            if frame is not None and is_users(str(getattr(frame, "filename", "<"))):
                return f"{frame.filename}:{frame.lineno}"
            if line := observer.line_of(index):
                return line
    return ""


def leaf_names(arguments: Mapping[str, Any]) -> list[str]:
    """Return the path of each leaf of the arguments, in the order of a program's inputs."""
    return [name for name, _ in flatten(dict(arguments))]
