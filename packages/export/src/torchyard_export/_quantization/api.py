"""Quantize: record a model, find scales by calibration, and say what became int8."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch import nn
from torch.fx import GraphModule

from torchyard import arguments
from torchyard_export._artifact.program import program_runner, without_futures
from torchyard_export._audit.model import audit_model
from torchyard_export._audit.program import audit_program
from torchyard_export._audit.reference import Reference
from torchyard_export._capture.sample import Bounds, Draw, Sampler, recorded_sizes
from torchyard_export._capture.trace import record
from torchyard_export._errors import InputError
from torchyard_export._finding import Finding, FindingKind
from torchyard_export._quantization.accuracy import Comparison
from torchyard_export._quantization.backend import (
    Activations,
    Backend,
    QuantizationTarget,
    backend_of,
)
from torchyard_export._quantization.calls import Expected, calls_of
from torchyard_export._quantization.checks import check_calls, check_model, chosen
from torchyard_export._quantization.graph import (
    float_layers,
    float_products,
    int8_layers,
    tidy,
    weight_bytes,
)
from torchyard_export._report.quantization import QuantizationReport, attach
from torchyard_export._work import Work

__all__ = ["Quantized", "quantize"]

_OF: Final = "quantize"
# Of the calibration calls, which are kept to be compared where no others are given.
_COMPARED: Final = 16
_TAKES: Final = {
    "static": "linear, conv1d and conv2d layers whose input has one use of that kind",
    "dynamic": "linear layers alone where scales are of each call",
}


@dataclass(frozen=True, slots=True)
class Quantized:
    """A quantized model, and what it cost.

    Attributes:
        model: a graph, called as the float model is; :func:`torchyard_export.export` takes it.
        report: layers, bytes, distance from float.
    """

    model: GraphModule
    report: QuantizationReport


def quantize(
    model: nn.Module,
    args: Sequence[Any],
    kwargs: Mapping[str, Any] | None = None,
    *,
    calibration: Iterable[Any] | None = None,
    target: QuantizationTarget = "x86",
    activations: Activations = "static",
    dynamic: Mapping[str, Any] | None = None,
    keep: Sequence[str] = (),
    evaluation: Iterable[Any] | None = None,
    values: Bounds | None = None,
    sample: Draw | None = None,
    accept: Collection[str] = (),
    seed: int = 0,
) -> Quantized:
    """Quantize a float32 model to int8 by torchao's PT2E flow, for export.

    The model is audited and recorded as :func:`torchyard_export.export` does it, the recorded
    program is compared with the model, and torchao's quantizer of the target marks its linear and
    convolution layers. Weights become int8 with a scale per output channel (codes times scale,
    symmetric); activations become 8-bit codes with one scale and zero point per tensor, uint8 for
    x86 and int8 for xpu: ``code = clamp(round(x / scale) + zero_point)``.

    Source: torchao, ``torchao/quantization/pt2e``.

    Args:
        model: any module in evaluation mode with float32 weights; it is not changed.
        args: an example call.
        kwargs: the example's named arguments.
        calibration: calls that scales of activations are found by: each a tuple ``(x,)``, or a
            dict of arguments by name. Needed for static scales; read once.
        target: ``x86``, for Inductor's kernels on the CPU, or ``xpu``, for Intel's GPUs.
        activations: ``static``, scales from calibration, or ``dynamic``, scales from each call's
            own range; dynamic ones are of linear layers alone, and of x86.
        dynamic: argument -> axis -> name or :class:`Dimension`, as for ``export``.
        keep: names of modules whose layers stay in float.
        evaluation: calls on which the quantized model is compared with the float one, in the form
            of ``calibration``; without them the first 16 calibration calls.
        values, sample: of drawn inputs, as for ``export``.
        accept: kinds of findings that are wanted.
        seed: of all that is drawn.

    Returns:
        The quantized model with its report.

    Raises:
        ExportError: the model cannot be recorded, the recorded program computes something else, or
            no layer became int8; its findings say where and why.
        ImportError: torchao is absent, or lacks a part.
        InputError: a call is not like the example; names it.
        TypeError, ValueError: an argument is not understood.
    """
    target, activations, keep = chosen(model, args, kwargs, target, activations, keep)
    if values is not None:
        arguments.instance(_OF, "values", values, Mapping)
    if sample is not None:
        arguments.function(_OF, "sample", sample)
    accept = arguments.sequence(_OF, "accept", accept, expected="a list of findings", sets=True)
    seed = arguments.integer(_OF, "seed", seed, least=0, most=(1 << 63) - 1)
    check_calls(calibration, evaluation, activations)
    backend = backend_of(target, activations, keep)
    work = Work(model, tuple(args), kwargs or {}, dynamic, accept)
    check_model(model, work, target)
    expected = Expected.of(work.call, work.dynamic, work.device)
    sampler = Sampler(work.call.arguments, work.dynamic, values or {}, sample)
    graph = _recorded(model, work, sampler, seed)
    given = [work.call.arguments] if calibration is None else calibration
    quantized, kept, count = _calibrated(
        graph, backend, calls_of("calibration", given, expected), work
    )
    int8 = int8_layers(quantized)
    left = tuple(float_layers(quantized, keep, _TAKES[activations]))
    if not int8:
        reasons = "; ".join(f"{item.name} ({item.kind}): {item.reason}" for item in left)
        text = f"no layer became int8: {reasons or 'the model has no linear or convolution layer'}"
        work.judge([Finding(FindingKind.NOTHING_QUANTIZED, text)])
    compared: Iterable[dict[str, Any]] = kept
    source = "the example" if calibration is None else "calibration"
    if evaluation is not None:
        compared, source = calls_of("evaluation", evaluation, expected), "evaluation"
    comparison = Comparison()
    with torch.no_grad():
        for call in compared:
            positional, named = work.call.spread(call)
            comparison.add(model(*positional, **named), quantized(*positional, **named))
    report = QuantizationReport(
        model=type(model).__name__,
        target=target,
        activations=activations,
        calibration=0 if calibration is None else count,
        int8=dict(int8),
        float_layers=left,
        float_products=dict(float_products(quantized)),
        float_bytes=weight_bytes(model),
        int8_bytes=weight_bytes(quantized),
        accuracy=comparison.accuracy(),
        compared=f"{comparison.calls} calls of {source}",
        torchao=backend.version,
    )
    attach(quantized, report)
    return Quantized(quantized, report)


def _recorded(model: nn.Module, work: Work, sampler: Sampler, seed: int) -> GraphModule:
    """Record the model, and compare the program with it."""
    sizes = recorded_sizes(work.dynamic, work.call.arguments)
    first = sampler.draw(sizes, seed)
    work.judge(audit_model(model, work.call, first))
    case = work.case(Reference(model, work.call), sizes, first)
    program, _, findings = record(model, *work.call.spread(first), work.dynamic)
    work.judge([*findings, *audit_program(program)])
    work.stage("export", program_runner(program), [case], 0.0, program)
    with without_futures():
        # Sizes are checked by name before each call, and by the artifact.
        return program.module(check_guards=False)


def _calibrated(
    graph: GraphModule, backend: Backend, calls: Iterator[dict[str, Any]], work: Work
) -> tuple[GraphModule, list[dict[str, Any]], int]:
    """Return the converted graph, the first calls, and how many there were."""
    prepared = backend.prepare(graph)
    kept: list[dict[str, Any]] = []
    count = 0
    with torch.no_grad():
        for call in calls:
            args, kwargs = work.call.spread(call)
            with _observing(count):
                prepared(*args, **kwargs)
            count += 1
            if count <= _COMPARED:
                kept.append(call)
    return tidy(backend.convert(prepared)), kept, count


@contextmanager
def _observing(index: int) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        first = (str(error).strip().splitlines() or [""])[0][:300]
        raise InputError(
            f"quantize: calibration[{index}]: expected activations that scales can be made of, but "
            f"running the model raised {type(error).__name__}: {first}"
        ) from error
