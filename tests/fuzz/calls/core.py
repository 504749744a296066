"""Calls of torchyard's public functions that are right."""

from __future__ import annotations

import json
import tempfile
from functools import cache
from pathlib import Path
from typing import Any, Final

import torchyard
from tests.fuzz.harness import call_of
from tests.fuzz.kinds import (
    BOOL,
    FUNCTION,
    OTHER,
    REFUSED,
    TEXT,
    Kind,
    choice,
    integer,
    number,
    optional,
)
from torchyard import optimization
from torchyard.optimization import _api
from torchyard_kernels.topk.contract import TOPK, TopKRequest

__all__ = ["CALLS"]

# Which of the words make sense is said by what reads them.
_WORDS: Final = Kind(lambda v: v if isinstance(v, str) else REFUSED, free=True)
_CONTRACT: Final = choice(TOPK)
_EMPTY: Final = Kind(lambda v: v if isinstance(v, dict) and not v else REFUSED, free=True)
_TABLE: Final = Kind(lambda v: v if isinstance(v, dict) else REFUSED, free=True)
_ENVIRON: Final = optional(_TABLE)
_NOTHING: Final = Kind(
    # Of no sources there are no plugins.
    lambda v: v if isinstance(v, list | tuple | dict | str) and not v else REFUSED,
    free=True,
)
_SEQUENCE: Final = Kind(
    lambda v: v if isinstance(v, list | tuple) and all(isinstance(x, str) for x in v) else REFUSED,
    free=True,
)


_KEPT: Final = Path("kept")


def _request() -> TopKRequest:
    return TopKRequest("cpu", "float32", 3, 8, 2)


def _used(**given: Any) -> None:
    with torchyard.use(**given):
        pass


def _recorded() -> str:
    with torchyard.record_decisions() as record:
        return record.render()


def _dump(folder: str) -> Path:
    path = Path(folder, "decisions.json")
    path.write_text(json.dumps({"schema": 1, "made_with": {}, "decisions": {}}))
    return path


def _read(**given: Any) -> Any:
    with tempfile.TemporaryDirectory() as folder:
        kept = _dump(folder)
        path = given["path"]
        return torchyard.read_dump(kept if isinstance(path, Path) else path)


def _measured(path: Any = None, machine: Any = "a", found: Any = None) -> Any:
    with tempfile.TemporaryDirectory() as folder:
        file = torchyard.MeasuredFile(Path(folder, "m") if path is None else path)
        if found is not None:
            file.merge(machine, found)
        return file.read(machine)


def _uncompiled(**given: Any) -> Any:
    return torchyard.uncompiled(**given)(lambda: 1)()


def _registry() -> torchyard.Registry:
    return torchyard.registry()


def _toy() -> tuple[Any, Any]:
    from torch import nn, ones

    return nn.Linear(2, 2).eval(), ones(1, 2)


def _offered() -> list[str]:
    # What is tried takes seconds, and depends on no argument's form.
    return [one.name for _, one in _api._offered()[0]]


@cache
def _plan() -> optimization.Plan:
    model, example = _toy()
    return torchyard.optimize(model, example, skip=_offered()).plan


def _read_plan(**given: Any) -> Any:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "plan.json")
        _plan().save(file)
        return optimization.read_plan(file if isinstance(given["path"], Path) else given["path"])


_DUMP: Final = torchyard.DecisionDump({}, {})
_IMPLEMENTATION: Final = {
    "contract": "op/1",
    "name": "plugin.name",
    "supports": lambda request, platform: torchyard.Verdict.yes(),
    "load": lambda: lambda: None,
    "before": (),
    "after": (),
    "minor": 0,
    "claims": frozenset(),
}

CALLS: Final = (
    call_of("torchyard.setting", {"name": "TORCHYARD_NOTICES", "environ": {}}, environ=_ENVIRON),
    call_of(
        "torchyard.plugin_setting",
        {"plugin": "cpu", "name": "threads", "environ": {}},
        plugin=TEXT,
        name=TEXT,
        environ=_ENVIRON,
    ),
    call_of("torchyard.child_environ", {"changes": {"A": "1", "B": None}}, changes=_EMPTY),
    call_of(
        "torchyard.host_problem",
        {"files": ["/dev/null"], "settings": ("A",), "environ": {}},
        files=_SEQUENCE,
        settings=_SEQUENCE,
        environ=_ENVIRON,
    ),
    call_of("torchyard.use", {"topk": "torch.topk"}, _used, topk=_WORDS),
    call_of("torchyard.use", {"topk_v1": "torch.topk"}, _used, topk_v1=_WORDS),
    call_of("torchyard.record_decisions", {}, _recorded),
    call_of("torchyard.ContractId", {"op": "attention", "version": 1}, op=_WORDS),
    call_of("torchyard.ContractId.parse", {"text": "attention/1"}, says={"text": "contract"}),
    call_of(
        "torchyard.resolve",
        {"contract": TOPK, "request": _request(), "use": None},
        contract=_CONTRACT,
    ),
    *(
        call_of(
            f"torchyard.Registry.{name}",
            {"contract": TOPK, "request": _request(), "use": None},
            lambda name=name, **given: getattr(_registry(), name)(**given),
            contract=_CONTRACT,
            use=optional(_WORDS),
        )
        for name in ("decide", "resolve")
    ),
    call_of(
        "torchyard.Registry",
        {"sources": [], "platform": torchyard.probe_platform(), "environ": {}},
        sources=optional(_NOTHING),
        platform=optional(OTHER),
        environ=_ENVIRON,
    ),
    call_of(
        "torchyard.require",
        lambda: {"decision": _registry().decide(TOPK, _request())},
    ),
    call_of(
        "torchyard.evidence_of",
        {"feature": "attention.flex_attention", "device": "cpu"},
        feature=TEXT,
        device=TEXT,
    ),
    call_of(
        "torchyard.read_platform_file",
        lambda: {"where": "h100"},
        says={"where": "where|x|platform '[^']*'|False"},
    ),
    call_of(
        "torchyard.with_accelerators",
        lambda: {"platform": torchyard.probe_platform(), "device": "cpu"},
        device=TEXT,
    ),
    call_of("torchyard.read_dump", lambda: {"path": _KEPT}, _read, says={"path": "path|x|False"}),
    call_of("torchyard.diff_dumps", {"old": _DUMP, "new": _DUMP}),
    call_of("torchyard.decision_digest", {"contract": TOPK}, contract=_CONTRACT),
    call_of("torchyard.sources_digest", {"packages": ["torchyard"]}, packages=_SEQUENCE),
    call_of("torchyard.digest_of", {"words": ["a", "b"]}, words=_SEQUENCE),
    call_of("torchyard.MeasuredFile", {"path": None}, _measured, path=optional(TEXT)),
    call_of("torchyard.MeasuredFile.read", {"machine": "a"}, _measured, machine=TEXT),
    call_of(
        "torchyard.MeasuredFile.merge",
        {"machine": "a", "found": {"x": 1}},
        _measured,
        machine=TEXT,
        found=optional(_TABLE),
    ),
    call_of(
        "torchyard.note_use",
        {"identifier": "attention.flex_attention", "device": "cpu"},
        # A feature may be the same on every device.
        device=TEXT,
        says={"identifier": "identifier|feature 'x' on 'cpu'|feature 'False' on 'cpu'"},
    ),
    call_of("torchyard.uncompiled", {"reason": "a reason"}, _uncompiled, reason=TEXT),
    call_of(
        "torchyard.Implementation",
        _IMPLEMENTATION,
        contract=choice("op/1"),
        name=_WORDS,
        supports=FUNCTION,
        load=FUNCTION,
        before=_SEQUENCE,
        after=_SEQUENCE,
        claims=_SEQUENCE,
        compilations=optional(FUNCTION),
    ),
    call_of(
        "torchyard.Compilation",
        {"architecture": "a1", "name": "sort/uint8", "missing": str, "run": dict},
        architecture=TEXT,
        name=TEXT,
        missing=FUNCTION,
        run=FUNCTION,
    ),
    call_of(
        "torchyard.Check",
        {"name": "a", "status": torchyard.CheckStatus.PASS, "text": "b", "hint": ""},
        name=TEXT,
        text=_WORDS,
        hint=_WORDS,
        status=OTHER,
    ),
    call_of(
        "torchyard.DeviceStatus",
        {"device": "cpu", "available": True, "text": "", "hint": "", "count": 1},
        device=TEXT,
        text=_WORDS,
        hint=_WORDS,
        available=BOOL,
    ),
    call_of(
        "torchyard.optimize",
        lambda: {
            **dict(zip(("model", "example"), _toy(), strict=True)),
            "goal": "latency",
            "tolerance": None,
            "budget": 1.0,
            "skip": _offered(),
            "progress": False,
        },
        model=OTHER,
        example=OTHER,
        goal=choice("latency", "throughput", "memory"),
        tolerance=optional(number(above=0)),
        budget=number(0),
        skip=Kind(lambda v: v if isinstance(v, list | tuple | set) and not v else REFUSED),
        progress=BOOL,
    ),
    call_of(
        "torchyard.optimization.apply_plan",
        lambda: {"model": _toy()[0], "plan": _plan(), "elsewhere": False},
        model=OTHER,
        plan=OTHER,
        elsewhere=BOOL,
        says={"plan": "plan|x|False"},
    ),
    call_of(
        "torchyard.optimization.read_plan",
        lambda: {"path": _KEPT},
        _read_plan,
        says={"path": "path|x|False"},
    ),
    call_of(
        "torchyard.optimization.Applied",
        {"undo": lambda: None, "freed": 0, "reset": None, "notes": ()},
        undo=FUNCTION,
        freed=integer(0),
        reset=optional(FUNCTION),
        notes=_SEQUENCE,
    ),
    call_of(
        "torchyard.optimization.Variant",
        {"name": "a", "apply": lambda keep: None, "lossy": False},
        name=TEXT,
        apply=FUNCTION,
        lossy=BOOL,
    ),
    call_of(
        "torchyard.optimization.Optimization",
        {
            "name": "a",
            "stage": optimization.OptimizationStage.WEIGHTS,
            "summary": "b",
            "variants": lambda model: (),
        },
        name=TEXT,
        stage=OTHER,
        summary=TEXT,
        variants=FUNCTION,
    ),
    call_of("torchyard.Verdict.yes", {"text": ""}, text=_WORDS),
    call_of(
        "torchyard.Verdict.no",
        {"code": torchyard.ReasonCode.DTYPE, "text": "a", "hint": ""},
        code=OTHER,
        text=_WORDS,
        hint=_WORDS,
    ),
    call_of(
        "torchyard.SpeedLimits",
        {"per_second": {"a": 1.0}, "tune": ""},
        per_second=_TABLE,
        tune=_WORDS,
    ),
    call_of(
        "torchyard.Workload",
        {"name": "a", "limits": ("b",), "amount": 1.0, "prepare": lambda: lambda: None},
        name=TEXT,
        limits=_SEQUENCE,
    ),
    call_of(
        "torchyard.ContractDefinition",
        {
            "contract": "op/1",
            "summary": "a",
            "fields": (),
            "parse": lambda fields: _request(),
            "cases": lambda device: (),
        },
        contract=choice("op/1"),
        summary=_WORDS,
        fields=Kind(lambda v: v if isinstance(v, list | tuple) and not v else REFUSED, free=True),
    ),
    call_of(
        "torchyard.RequestField",
        {"name": "a", "help": "b", "default": "c"},
        name=TEXT,
        help=_WORDS,
        default=_WORDS,
    ),
)
