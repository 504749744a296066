"""Calls of torchyard_compile's public functions that are right."""

from __future__ import annotations

from typing import Any, Final

import torch
from torch import nn

import torchyard_compile
from tests.fuzz.harness import call_of
from tests.fuzz.kinds import BOOL, OTHER, REFUSED, Kind, choice, integer, optional

__all__ = ["CALLS"]

_TEXT: Final = Kind(lambda v: v if isinstance(v, str) or callable(v) else REFUSED, free=True)
_MODE: Final = Kind(lambda v: v if isinstance(v, str) else REFUSED, free=True)


def _model() -> nn.Module:
    return nn.ModuleList(nn.TransformerEncoderLayer(4, 1, 4) for _ in range(2))


def _compiled(**given: Any) -> None:
    torchyard_compile.compile_regions(**given)


def _rerouted(**given: Any) -> None:
    torchyard_compile.reroute(**given).undo()


def _backward() -> dict[str, Any]:
    model = nn.Linear(2, 1)
    return {
        "model": model,
        "step": lambda: model(torch.ones(1, 2)).sum().backward(),
        "backend": "eager",
        "rounds": 1,
        "on_refusal": "warn",
    }


CALLS: Final = (
    call_of(
        "torchyard_compile.compiled_backward",
        _backward,
        # What is tried takes seconds, and depends on no argument's form.
        lambda **given: torchyard_compile.compiled_backward(**given),
        model=OTHER,
        step=Kind(lambda v: v if callable(v) else REFUSED, free=True),
        backend=_TEXT,
        rounds=integer(1),
        on_refusal=choice("raise", "warn"),
        calls=("backend", "step"),
    ),
    call_of(
        "torchyard_compile.reroute",
        lambda: {"model": _model(), "verify": False},
        _rerouted,
        model=Kind(
            lambda v: v if v is None or isinstance(v, nn.Module | torch.optim.AdamW) else REFUSED
        ),
        verify=BOOL,
    ),
    call_of(
        "torchyard_compile.Reroute",
        {"verify": False},
        lambda **given: torchyard_compile.Reroute(**given).undo(),
        verify=BOOL,
    ),
    call_of(
        "torchyard_compile.GraphReroute",
        {"inner": "eager"},
        lambda **given: torchyard_compile.GraphReroute(**given),
        inner=optional(_TEXT),
        calls=("inner",),
    ),
    call_of(
        "torchyard_compile.LinearFusion",
        {},
        lambda **given: torchyard_compile.LinearFusion(**given),
    ),
    call_of(
        "torchyard_compile.compile_regions",
        lambda: {
            "model": _model(),
            "least": 2,
            "budget": 4,
            "on_fallback": "raise",
            "dynamic": None,
            "backend": "eager",
            "mode": None,
        },
        _compiled,
        model=OTHER,
        least=integer(1, 2),
        budget=integer(0),
        on_fallback=choice("raise", "warn"),
        dynamic=optional(BOOL),
        backend=_TEXT,
        mode=optional(_MODE),
        says={"least": "least|model"},
        calls=("backend",),
    ),
)
