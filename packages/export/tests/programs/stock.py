"""What stock torch makes of the cells of the matrix: export, decompositions, files, ONNX, code."""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable
from contextlib import redirect_stderr
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch import Tensor
from torch._inductor import aoti_compile_and_package, aoti_load_package
from torch.export import Dim, ExportedProgram

from packages.export.tests.models.recurrent import Cell, axes_of, prepared

# What a stock program is tried at: (batch, time).
TRIALS = ((3, 7), (1, 1), (5, 17), (2, 4))
ATOL = 1e-4

Program = Callable[..., Any]


def stock(cell: Cell, *, onnx: bool = False, compiled: bool = False) -> dict[str, str]:
    """Export a cell by torch alone; return form -> ``passed``, or ``word: why``.

    ``frozen`` is a program that takes the example's sizes alone, and ``partial`` one that refuses
    some that were asked for; neither was an error of export. Parity within 1e-4.

    Args:
        cell: what is exported.
        onnx: take ``torch.onnx.export`` too.
        compiled: take AOTInductor too, by Dim; what does not pass before is not compiled.
    """
    found = {}
    for name, dims in (
        ("Dim", {"batch": Dim("batch", min=1, max=5), "time": Dim("time", min=1, max=17)}),
        ("Dim.AUTO", {"batch": Dim.AUTO, "time": Dim.AUTO}),
    ):
        forms = ["export", "pt2", "decompositions"]
        forms += ["aotinductor"] * (compiled and name == "Dim")
        # Dim.AUTO never promises a size of 1.
        least = 2 if name == "Dim.AUTO" else 1
        try:
            program = _exported(cell, dims)
        except Exception as error:
            found |= {f"{form}, {name}": _refused(error) for form in forms}
            continue
        makers: dict[str, Callable[[ExportedProgram], Program]] = {
            "export": lambda program: program.module(),
            "pt2": _saved,
            "decompositions": lambda program: program.run_decompositions().module(),
            "aotinductor": _compiled,
        }
        for form in forms:
            if form == "aotinductor" and found[f"export, {name}"] != "passed":
                found[f"{form}, {name}"] = found[f"export, {name}"]
                continue
            found[f"{form}, {name}"] = _made(cell, least, lambda m=makers[form], p=program: m(p))
    if onnx:
        found["onnx"] = _made(cell, 1, lambda: _onnx(cell))
    return found


def _shapes(cell: Cell, dims: dict[str, Any]) -> dict[str, Any]:
    return {
        name: {axis: dims[dimension] for axis, dimension in axes.items()}
        for name, axes in axes_of(cell).items()
    }


def _exported(cell: Cell, dims: dict[str, Any]) -> ExportedProgram:
    model, kwargs = prepared(cell)
    # It prints the graph of what fails.
    with warnings.catch_warnings(), redirect_stderr(io.StringIO()):
        warnings.simplefilter("ignore")
        return torch.export.export(model, (), kwargs, dynamic_shapes=_shapes(cell, dims))


def _saved(program: ExportedProgram) -> Program:
    buffer = io.BytesIO()
    torch.export.save(program, buffer)
    buffer.seek(0)
    return torch.export.load(buffer).module()


def _compiled(program: ExportedProgram) -> Program:
    # The folder stays as long as the library that was loaded from it.
    folder = TemporaryDirectory()
    path = str(Path(folder.name, "model.pt2"))
    with torch.no_grad():
        loaded: Any = aoti_load_package(aoti_compile_and_package(program, package_path=path))

    def run(**kwargs: Any) -> Any:
        assert folder
        return loaded(**kwargs)

    return run


def _onnx(cell: Cell) -> Program:
    import onnxruntime

    model, kwargs = prepared(cell)
    dims = {"batch": Dim("batch", min=1, max=5), "time": Dim("time", min=1, max=17)}
    program = torch.onnx.export(
        *(model, ()), kwargs=kwargs, dynamic_shapes=_shapes(cell, dims), dynamo=True, verbose=False
    )
    buffer = io.BytesIO()
    program.save(buffer)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(buffer.getvalue(), options)

    def run(**kwargs: Any) -> list[Tensor]:
        feed = {name: value.numpy() for name, value in kwargs.items()}
        return [torch.from_numpy(item) for item in session.run(None, feed)]

    return run


def _made(cell: Cell, least: int, make: Callable[[], Program]) -> str:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            program = make()
    except Exception as error:
        return _refused(error)
    return _tried(cell, program, least)


@torch.no_grad()
def _tried(cell: Cell, program: Program, least: int) -> str:
    fixed = {"batch": {"time": 7}, "time": {"batch": 3}}.get(cell.axes, {})
    failed = []
    for batch, time in TRIALS:
        if min(batch, time) < least:
            continue
        sizes = {"batch": batch, "time": time} | fixed
        model, kwargs = prepared(cell, **sizes)
        expected = _leaves(model(**kwargs))
        place = f"batch={sizes['batch']} time={sizes['time']}"
        try:
            got = _leaves(program(**kwargs))
        except Exception as error:
            failed.append(f"refuses {place}: {type(error).__name__}")
            continue
        for left, right in zip(expected, got, strict=True):
            if left.shape != right.shape or not torch.allclose(left, right, atol=ATOL):
                return f"wrong: at {place}"
    others = sum(min(trial) >= least for trial in TRIALS) - 1
    if not failed:
        return "passed"
    return f"{'frozen' if len(failed) == others else 'partial'}: {failed[0]}"


def _refused(error: BaseException) -> str:
    while error.__cause__ is not None:
        error = error.__cause__
    text = str(error).strip().splitlines()
    return f"refused: {type(error).__name__}: {(text or [''])[0][:100]}"


def _leaves(value: Any) -> list[Tensor]:
    if isinstance(value, Tensor):
        return [value]
    return [leaf for item in value for leaf in _leaves(item)]
