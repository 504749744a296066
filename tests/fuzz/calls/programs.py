"""Calls of torchyard_programs' public functions that are right."""

from __future__ import annotations

from typing import Final

import torch

import torchyard_programs as programs
from tests.fuzz.harness import call_of
from tests.fuzz.kinds import ANYTHING, FUNCTION, OTHER, REFUSED, TEXT, Kind, optional, tensor
from torchyard_programs import Input, Recordings

__all__ = ["CALLS"]

_X: Final = torch.arange(3.0)
_DTYPES: Final = (bool, int, float, torch.float32)
_INPUTS: Final = (Input("x", torch.float32),)
_TEXT, _CAPTURED = programs.trace(
    lambda x: x.sin() + 1, "fn", (("x", torch.float32),), torch.device("cpu")
)
_NUMBERED: Final = '["sin",["x0"],{}]\n"%0"'
_PROGRAM: Final = programs.parse(_TEXT)
_ANY: Final = (
    *("meta", "complex", "bool", "long", "uint8", "double", "half", "freed", "shortened"),
    *("another dimension", "a dimension less", "one element", "empty", "sparse", "nested"),
)
# Of nothing there is nothing to do.
_NOTHING: Final = Kind(lambda v: v if isinstance(v, list | tuple) and not v else REFUSED, free=True)
# A list of names is as good as a tuple, no conversions are none, and None is zeros.
_NAMES: Final = Kind(lambda v: ("x",) if isinstance(v, list) and v == ["x"] else REFUSED)
_NO_CASTS: Final = Kind(lambda v: None if isinstance(v, dict) and not v else REFUSED)
_SLOPES: Final = Kind(lambda v: (None,) if isinstance(v, list) and v == [None] else REFUSED)


def _recordings() -> Recordings:
    return Recordings(lambda fn, device: programs.trace(fn, "fn", (("x", torch.float32),), device))


CALLS: Final = (
    call_of(
        "torchyard_programs.trace",
        {
            "function": lambda x: x + 1,
            "role": "fn",
            "inputs": (("x", torch.float32),),
            "device": torch.device("cpu"),
            "noun": "an input",
            "typed": "an input's dtype",
            "anywhere": False,
        },
        # Its role is the function's name in messages.
        says={"function": "function|fn"},
        calls=("function",),
        role=TEXT,
        noun=TEXT,
        typed=TEXT,
    ),
    call_of("torchyard_programs.parse", {"text": _TEXT}),
    call_of("torchyard_programs.result_count", {"text": _TEXT}),
    call_of(
        "torchyard_programs.build",
        {"program": _PROGRAM, "inputs": ("x",), "casts": None, "vmapped": False},
        lambda **given: programs.build(**given)(_X),
        inputs=_NAMES,
        casts=optional(_NO_CASTS),
    ),
    *(
        call_of(
            f"torchyard_programs.{name}",
            {"program": _PROGRAM, "inputs": _INPUTS, "captured": ()},
            captured=_NOTHING,
        )
        for name in ("infer", "is_pointwise")
    ),
    call_of(
        "torchyard_programs.typed_program",
        {"text": _TEXT, "inputs": _INPUTS, "captured": ()},
        captured=_NOTHING,
    ),
    call_of(
        "torchyard_programs.element_programs",
        {"text": _TEXT, "inputs": _INPUTS, "captured": (), "elements": True},
        captured=_NOTHING,
    ),
    call_of(
        "torchyard_programs.number_steps",
        {"text": _NUMBERED, "inputs": (Input("x0", torch.float32),), "captured": ()},
        captured=_NOTHING,
    ),
    call_of(
        "torchyard_programs.is_readable_on",
        {"tensor": _X, "device": torch.device("cpu")},
        tensor=tensor(*_ANY),
    ),
    call_of("torchyard_programs.stored", {"captured": (_X,)}, captured=optional(_NOTHING)),
    call_of(
        "torchyard_programs.pullback",
        {"function": lambda x: (x * 2,), "primals": (_X,), "slopes": (_X,)},
        calls=("function",),
        primals=OTHER,
        slopes=_SLOPES,
    ),
    call_of(
        "torchyard_programs.pushforward",
        {"function": lambda x: (x * 2,), "primals": (_X,), "tangents": (_X,)},
        calls=("function",),
        primals=OTHER,
        tangents=OTHER,
    ),
    call_of(
        "torchyard_programs.Input",
        {"name": "x", "dtype": torch.float32, "ndim": 0},
        name=TEXT,
        # By identity: an array of numpy has no one answer to whether it equals a type.
        dtype=Kind(lambda v: v if any(v is one for one in _DTYPES) else REFUSED),
    ),
    call_of("torchyard_programs.Recordings", {"record": lambda fn: ("", [])}, record=FUNCTION),
    call_of(
        "torchyard_programs.Recordings.recorded",
        {"function": lambda x: x + 1, "device": torch.device("cpu")},
        lambda **given: _recordings().recorded(**given),
        calls=("function",),
    ),
    call_of(
        "torchyard_programs.Recordings.cached_recording",
        {"function": lambda x: x + 1},
        lambda **given: _recordings().cached_recording(**given),
        # It asks what is there, as a dict's get: nothing is kept of what is no function.
        function=ANYTHING,
    ),
    *(
        call_of(
            f"torchyard_programs.Recordings.{name}",
            {"text": _TEXT},
            lambda name=name, **given: getattr(_recordings(), name)(**given),
            text=TEXT,
        )
        for name in ("is_interned", "interned")
    ),
)
