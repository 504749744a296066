"""Calls of torchyard_export's public functions that are right."""

from __future__ import annotations

import contextlib
import sys
import tempfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, Final

import torch
from torch import nn

import torchyard_export
from tests.fuzz.harness import call_of
from tests.fuzz.kinds import OTHER, REFUSED, TEXT, Kind, choice, integer, optional, tensor
from torchyard_export import Artifact, FindingKind

__all__ = ["CALLS"]

_EMPTY: Final = Kind(lambda v: v if isinstance(v, list | tuple) and not v else REFUSED, free=True)
_TABLE: Final = Kind(lambda v: v if isinstance(v, dict) and not v else REFUSED, free=True)
_NAMES: Final = Kind(
    lambda v: v if isinstance(v, list | tuple) and all(isinstance(x, str) for x in v) else REFUSED,
    free=True,
)
_WORDS: Final = Kind(lambda v: v if isinstance(v, str) else REFUSED, free=True)

_KEPT: Final = Path("kept")


@cache
def _model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Linear(4, 4).eval()


@cache
def _artifact() -> Artifact:
    return torchyard_export.export(_model(), (torch.ones(2, 4),), trials=1)


@cache
def _members() -> dict[str, bytes]:
    return dict(_artifact()._members)


@contextlib.contextmanager
def _inside() -> Iterator[str]:
    """Make a folder the current one, in which a path that is a word lies."""
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        yield folder


def _saved(**given: Any) -> None:
    with _inside() as folder:
        if isinstance(given["path"], Path):
            given["path"] = Path(folder, "kept.tya")
        _artifact().save(**given)


def _loaded(**given: Any) -> None:
    with _inside() as folder:
        kept = _artifact().save(Path(folder, "kept.tya"))
        if isinstance(given["path"], Path):
            given["path"] = kept
        torchyard_export.load(**given)


def _called(**given: Any) -> Any:
    return _artifact()(**given)


def _runner(**given: Any) -> None:
    """Write no runner: the artifact has no machine code, which is said last."""
    with _inside() as folder:
        if isinstance(given["folder"], Path):
            given["folder"] = Path(folder, "kept")
        try:
            torchyard_export.write_runner(**given)
        except torchyard_export.ArtifactError as error:
            if given["target"] is not None or "machine code" not in str(error):
                raise


CALLS: Final = (
    call_of(
        "torchyard_export.export",
        lambda: {
            "model": _model(),
            "args": (torch.ones(2, 4),),
            "kwargs": None,
            "dynamic": None,
            "targets": ("pt2",),
            "values": None,
            "sample": None,
            "accept": (),
            "trials": 1,
            "seed": 0,
        },
        lambda **given: torchyard_export.export(**given).report.model,
        model=OTHER,
        kwargs=optional(_TABLE),
        dynamic=optional(_TABLE),
        values=optional(_TABLE),
        sample=Kind(lambda v: v if v is None else REFUSED),
        accept=_EMPTY,
        trials=integer(1, 10),
        seed=integer(0, 1 << 62),
        calls=("sample",),
    ),
    call_of(
        "torchyard_export.quantize",
        lambda: {
            "model": _model(),
            "args": (torch.ones(2, 4),),
            "kwargs": None,
            "calibration": [(torch.ones(2, 4),)],
            "target": "x86",
            "activations": "static",
            "dynamic": None,
            "keep": (),
            "evaluation": None,
            "values": None,
            "sample": None,
            "accept": (),
            "seed": 0,
        },
        lambda **given: torchyard_export.quantize(**given).report.int8,
        model=OTHER,
        kwargs=optional(_TABLE),
        dynamic=optional(_TABLE),
        keep=_EMPTY,
        values=optional(_TABLE),
        sample=Kind(lambda v: v if v is None else REFUSED),
        accept=_EMPTY,
        seed=integer(0, 1 << 62),
        calls=("sample",),
    ),
    call_of(
        "torchyard_export.load",
        {"path": _KEPT, "key": None, "namespaces": ()},
        _loaded,
        namespaces=_NAMES,
    ),
    call_of("torchyard_export.Artifact.save", {"path": _KEPT, "key": None}, _saved, path=TEXT),
    call_of(
        "torchyard_export.Artifact.to_bytes",
        {"key": None},
        lambda key: _artifact().to_bytes(key=key),
    ),
    *(
        call_of(
            f"torchyard_export.Artifact.{name}",
            {"target": "pt2"},
            lambda target, name=name: getattr(_artifact(), name)(target),
        )
        for name in ("files", "runner")
    ),
    call_of(
        "torchyard_export.Artifact.run",
        lambda: {"target": "pt2", "input": torch.ones(2, 4)},
        lambda target, input: _artifact().run(target, input),
        input=tensor(),
    ),
    call_of("torchyard_export.Artifact", lambda: {"input": torch.ones(2, 4)}, _called),
    call_of(
        "torchyard_export.Artifact",
        lambda: {"members": _members(), "author": "", "made": True, "namespaces": ()},
        author=_WORDS,
        namespaces=_NAMES,
    ),
    call_of(
        "torchyard_export.write_runner",
        lambda: {"artifact": _artifact(), "folder": _KEPT, "target": None},
        _runner,
        folder=TEXT,
    ),
    call_of(
        "torchyard_export.Dimension",
        {"name": "time", "min": 1, "max": 9},
        name=choice("x"),
        min=integer(1, 8),
        max=optional(integer(2, sys.maxsize)),
    ),
    call_of("torchyard_export.Dimension.parse", {"text": "time:1..9"}, text=choice("x")),
    call_of(
        "torchyard_export.Finding",
        {"kind": next(iter(FindingKind)), "text": "t", "where": ""},
        kind=OTHER,
        text=_WORDS,
        where=_WORDS,
    ),
)
