"""Calls of the flight recorder and of what checks gradients of collectives, that are right."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor

from tests.fuzz.harness import call_of
from tests.fuzz.kinds import OTHER, REFUSED, TEXT, Kind, choice, integer, number, optional
from torchyard_collectives import Pending, all_reduce, flight

__all__ = ["CALLS"]

_KEPT: Final = Path("kept")


def _enabled(**given: Any) -> None:
    with tempfile.TemporaryDirectory() as folder:
        if isinstance(given["folder"], Path):
            given["folder"] = folder
        flight.enable(**given)
        flight.disable()


def _dumped(**given: Any) -> None:
    # Where nobody waits, the recorder's thread may still write while the folder is removed.
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        flight.enable(folder)
        try:
            flight.dump(**given)
        finally:
            flight.disable()


def _read(function: Any, name: str, value: Any) -> Any:
    """Read a dump that was written just now, or what comes in its stead."""
    with tempfile.TemporaryDirectory() as folder:
        flight.enable(folder)
        path = flight.dump()
        flight.disable()
        kept = next(path.glob("rank-*.json")) if name == "path" else Path(folder)
        function(kept if isinstance(value, Path) else value)


def _fn(x: Tensor, *_: Tensor) -> Tensor:
    return all_reduce(x, grad="sum")


_NONE: Final = Kind(lambda v: None if v is None else REFUSED)
_EMPTY: Final = Kind(lambda v: v if isinstance(v, list | tuple) and not v else REFUSED, free=True)
# Reasons why something could not be read are any texts.
_TEXTS: Final = Kind(
    lambda v: (
        v
        if isinstance(v, list | tuple) and all(isinstance(text, str) and text for text in v)
        else REFUSED
    ),
    free=True,
)
_TABLE: Final = Kind(lambda v: v if isinstance(v, dict) and not v else REFUSED, free=True)

CALLS: Final = (
    call_of(
        "torchyard_collectives.flight.enable",
        {"folder": _KEPT, "timeout": 60.0, "capacity": 64, "gather": 5.0},
        _enabled,
        # Where a dump could be written is seen when one is.
        folder=optional(TEXT),
        timeout=number(above=0),
        capacity=integer(1, 1 << 24),
        gather=number(0),
    ),
    call_of(
        "torchyard_collectives.flight.dump",
        {"reason": "asked", "wait": 1.0},
        _dumped,
        reason=TEXT,
        wait=number(0),
    ),
    call_of(
        "torchyard_collectives.flight.read_dump",
        {"path": _KEPT},
        lambda path: _read(flight.read_dump, "path", path),
    ),
    call_of(
        "torchyard_collectives.flight.read_folder",
        {"folder": _KEPT},
        lambda folder: _read(flight.read_folder, "folder", folder),
    ),
    call_of(
        "torchyard_collectives.flight.analyse",
        {
            "histories": (),
            "world_size": None,
            "gone": None,
            "problems": (),
            "damaged": None,
            "patience": 1.0,
            "straggler": 1.0,
        },
        histories=_EMPTY,
        world_size=optional(integer(1, 1 << 24)),
        gone=optional(_TABLE),
        problems=_TEXTS,
        damaged=optional(_TABLE),
        patience=number(0),
        straggler=number(0),
    ),
    call_of(
        "torchyard_collectives.oracle.check_collective_grads",
        {
            "fn": _fn,
            "world_size": 1,
            "loss": "sum",
            "inputs": lambda rank, ranks: (torch.ones(2, dtype=torch.float64),),
            "shared": (),
            "modes": ("eager",),
            "dense": None,
            "launch": None,
        },
        calls=("fn", "inputs", "dense", "launch"),
        world_size=integer(1, 8),
        loss=choice("sum", "replicated"),
        inputs=optional(OTHER),
        shared=_EMPTY,
        modes=_EMPTY,
    ),
    call_of(
        "torchyard_collectives.Pending.then",
        {"function": lambda x: x + 1},
        lambda function: Pending(lambda: torch.ones(2)).then(function).wait(),
        calls=("function",),
    ),
)
_ = _NONE
