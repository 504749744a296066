"""Export: audit the model, record it, verify every form of the program, store the evidence."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor, nn
from torch.export import ExportedProgram
from torch.nn.utils.rnn import PackedSequence

from torchyard import arguments
from torchyard_export._artifact.artifact import Artifact
from torchyard_export._artifact.golden import choose, write_golden
from torchyard_export._artifact.manifest import (
    GOLDEN,
    MANIFEST,
    REPORT,
    Leaf,
    Manifest,
    digests,
    own_versions,
)
from torchyard_export._artifact.program import decompose, load_program, program_runner, save_program
from torchyard_export._artifact.vetting import allowing
from torchyard_export._audit.model import audit_model
from torchyard_export._audit.parity import Stage, Stopwatch
from torchyard_export._audit.program import audit_device, audit_layout, audit_program
from torchyard_export._audit.reference import Case, Reference
from torchyard_export._capture.packed import Opened, has_packed, opened
from torchyard_export._capture.sample import Bounds, Draw, Sampler, recorded_sizes, trial_sizes
from torchyard_export._capture.trace import record, shape_findings
from torchyard_export._find_target import find_target, implementation_of, request_of
from torchyard_export._finding import Finding, FindingKind
from torchyard_export._report.quantization import attached
from torchyard_export._report.report import Report
from torchyard_export._torch_compat import OpOverload, with_example_inputs
from torchyard_export._tree import flatten, structure
from torchyard_export._work import Work
from torchyard_export.contract import ExportRequest

# Each is a run of the model.
_MOST_TRIALS: Final = 10_000


def export(
    model: nn.Module,
    args: Sequence[Any],
    kwargs: Mapping[str, Any] | None = None,
    *,
    dynamic: Mapping[str, Any] | None = None,
    targets: Sequence[str] = ("pt2",),
    values: Bounds | None = None,
    sample: Draw | None = None,
    accept: Collection[str] = (),
    trials: int = 3,
    seed: int = 0,
) -> Artifact:
    """Export a model for inference as programs that are proven to compute what it does.

    The model is audited, recorded, and compared with its programs on the recorded sizes, the
    corners of the ranges and drawn sizes; each result has to be as close to the model in float64 as
    the model itself is, times four. That is done after recording, after decompositions, after
    saving and loading (which is what the target ``pt2`` is), and for each target.

    Args:
        model: any module in evaluation mode; it is not changed.
        args: an example call; its values are drawn from for others.
        kwargs: the example's named arguments.
        dynamic: argument -> axis -> name or :class:`Dimension`; ``"time:1..1000"`` has a range.
            Arguments that are lists, tuples or dicts take the same structure.
        targets: forms of the program: ``pt2``, or ``<plugin>.<target>``; the first runs calls.
        values: path of an integer input -> its least and greatest value, such as
            ``{"lengths": (1, "time")}``; otherwise the example's values are drawn.
        sample: (sizes, generator) -> arguments by name, for inputs that cannot be drawn so.
        accept: kinds of findings that are wanted; they are kept in the report.
        trials: how many sizes are drawn besides the corners.
        seed: of all that is drawn.

    Returns:
        The artifact, its report included.

    Raises:
        ExportError: a program would not do what the model does; its findings say where and why.
        TypeError, ValueError: an argument is not understood.
    """
    of = "export"
    if isinstance(model, torch.jit.ScriptModule):
        raise arguments.wrong_kind(
            of, "model", "a torch.nn.Module", model, "pass the module that was scripted"
        )
    arguments.instance(of, "model", model, nn.Module, "a torch.nn.Module")
    if not isinstance(args, (list, tuple)) or isinstance(args, PackedSequence):
        raise arguments.wrong_kind(of, "args", "a call's arguments as (x,)", args)
    if kwargs is not None:
        arguments.instance(of, "kwargs", kwargs, Mapping)
    targets = arguments.sequence(
        of, "targets", targets, arguments.text, expected="a list of names", least=1
    )
    accept = arguments.sequence(of, "accept", accept, expected="a list of findings", sets=True)
    if values is not None:
        arguments.instance(of, "values", values, Mapping)
    if sample is not None:
        arguments.function(of, "sample", sample)
    trials = arguments.integer(of, "trials", trials, least=1, most=_MOST_TRIALS)
    seed = arguments.integer(of, "seed", seed, least=0, most=(1 << 63) - 1)
    work = Work(model, tuple(args), kwargs or {}, dynamic, accept)
    for name in targets:
        # What is not there is said before anything takes long.
        with work.refusals(name):
            find_target(name, ExportRequest(work.device))
    sampler = Sampler(work.call.arguments, work.dynamic, values or {}, sample)
    recorded = recorded_sizes(work.dynamic, work.call.arguments)
    first = sampler.draw(recorded, seed)
    work.judge(audit_model(model, work.call, first))
    reference = Reference(model, work.call)
    sizes = trial_sizes(work.dynamic.dimensions.values(), recorded, count=trials, seed=seed)
    cases = [
        work.case(reference, item, first if item == recorded else sampler.draw(item, seed + index))
        for index, item in enumerate(sizes)
    ]
    with Stopwatch() as watch:
        traced, given = _traced(work, cases[0], model)
        spread = work.call.spread(given.arguments)
        program, observer, findings = record(traced, *spread, work.dynamic)
    # What was recorded here may be read here; who loads it elsewhere names what is not torch's.
    work.namespaces = frozenset(
        str(node.target).partition(".")[0]
        for node in program.graph.nodes
        if isinstance(node.target, OpOverload)
    )
    found, note = audit_device(traced, work.call, given)
    work.judge([*findings, *audit_program(program), *found], note=note)
    stages = [work.stage("export", program_runner(program), cases, watch.seconds, program)]
    work.judge(audit_layout(reference, cases[0], program_runner(program), observer))
    with Stopwatch() as watch:
        lowered = decompose(program)
    work.judge(shape_findings(lowered, work.dynamic))
    stages.append(
        work.stage("decompositions", program_runner(lowered), cases, watch.seconds, program)
    )
    if "export.pt2" not in map(implementation_of, targets):
        # The target pt2 is just that: a program that was saved and loaded.
        with Stopwatch() as watch, allowing(work.namespaces):
            loaded = load_program(save_program(program))
        work.judge(shape_findings(loaded, work.dynamic))
        stages.append(work.stage("saved", program_runner(loaded), cases, watch.seconds, program))
    members: dict[str, bytes] = {}
    described: dict[str, dict[str, Any]] = {}
    versions = own_versions()
    saved = save_program(program) if len(targets) > 1 else b""
    for index, name in enumerate(targets):
        own = program
        if index:
            # Lowering leaves marks in the sizes of a program, which another target trips over.
            with allowing(work.namespaces):
                own = load_program(saved)
            # A file has none, and AOTInductor asks for them.
            own = with_example_inputs(own, program.example_inputs)
        stage, files, said = _lower(work, name, own, cases)
        stages.append(stage)
        members |= {f"targets/{name}/{file}": content for file, content in files.items()}
        described[name] = said
        versions |= said["versions"]
    quantization = attached(model)
    report = Report(
        model=type(model).__name__ if quantization is None else quantization.model,
        dimensions=tuple(map(str, work.dynamic.dimensions.values())),
        ruler=reference.ruler,
        sizes=tuple(case.sizes for case in cases),
        stages=tuple(stages),
        accepted=tuple(work.accepted),
        notes=tuple(work.notes),
        versions=versions,
        quantization=quantization,
    )
    return _assemble(work, report, members, described, cases, versions)


def _traced(work: Work, case: Case, model: nn.Module) -> tuple[nn.Module, Case]:
    """Return what is recorded, and a call of it: between tensors, never packed sequences."""
    if not (has_packed(structure(case.arguments)) or has_packed(case.form)):
        return model, case
    return Opened(model, work.call), replace(case, arguments=opened(case.arguments))


def _lower(
    work: Work, name: str, program: ExportedProgram, cases: Sequence[Case]
) -> tuple[Stage, Mapping[str, bytes], dict[str, Any]]:
    with work.refusals(name):
        target = find_target(name, request_of(program, work.device))
        with Stopwatch() as watch, tempfile.TemporaryDirectory(prefix="torchyard-export-") as made:
            files = dict(target.export(program, Path(made)))
            work.judge(Finding(FindingKind(kind), text) for kind, text in target.findings(files))
            with tempfile.TemporaryDirectory(prefix="torchyard-export-") as loaded:
                with allowing(work.namespaces):
                    runner = target.load(files, Path(loaded))
                stage = work.stage(name, runner, cases, 0.0, program)
    said = {
        "implementation": implementation_of(name),
        "native": target.native,
        "versions": dict(target.versions()),
    }
    timed = Stage(
        *(stage.name, stage.cases, stage.wrong, stage.error, stage.ratio),
        *(round(watch.seconds, 3), stage.findings),
    )
    return timed, files, said


def _assemble(
    work: Work,
    report: Report,
    members: dict[str, bytes],
    described: dict[str, dict[str, Any]],
    cases: Sequence[Case],
    versions: dict[str, str],
) -> Artifact:
    golden, entries = write_golden(choose(cases))
    everything = {
        **members,
        GOLDEN: golden,
        REPORT: json.dumps(report.to_json(), indent=1).encode() + b"\n",
    }
    leaves = flatten(work.call.arguments)
    manifest = Manifest(
        model=report.model,
        device=work.device,
        signature=work.call.signature,
        inputs=tuple(
            Leaf.of(path, leaf, axes)
            for (path, leaf), axes in zip(leaves, work.dynamic.leaves, strict=True)
        ),
        input_form=structure(work.call.arguments),
        outputs=tuple(_output(path, leaf) for path, leaf in cases[0].outputs),
        output_form=cases[0].form,
        dimensions=work.dynamic.dimensions,
        targets=described,
        golden=entries,
        versions=versions,
        digests=digests(everything),
    )
    everything[MANIFEST] = manifest.to_bytes()
    return Artifact(everything, made=True, namespaces=work.namespaces)


def _output(path: str, leaf: Any) -> Leaf:
    if not isinstance(leaf, Tensor):
        return Leaf(path, "", (), leaf)
    return Leaf(path, str(leaf.dtype).removeprefix("torch."), (None,) * leaf.dim())
