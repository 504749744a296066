"""Calls of torchyard_collectives' public functions that are right, in a group of this process."""

from __future__ import annotations

from typing import Any, Final

import torch
import torch.distributed as dist
from torch import Tensor

import torchyard_collectives as collectives
from tests.fuzz.harness import Call
from tests.fuzz.kinds import ANYTHING, BOOL, REFUSED, Kind, choice, integer, tensor

__all__ = ["CALLS", "prepare"]

_ANY: Final = (
    *("long", "uint8", "double", "half", "complex", "bool"),
    *("another dimension", "a dimension less"),
)
_X: Final = tensor(*_ANY, "one element", "empty")
_GROUP: Final = Kind(lambda v: None if v is None else REFUSED)
_TOKEN: Final = Kind(lambda v: v if v is None or isinstance(v, Tensor) else REFUSED)
_SIZES: Final = Kind(lambda v: None if v is None else REFUSED)
_GRAD: Final = choice("sum", "replicated")
_OP: Final = choice("sum", "avg", "max", "min", "product")
_DIM: Final = integer(-1, 0)


def prepare() -> None:
    """Make a group of this process alone."""
    if not dist.is_initialized():
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)


def _x() -> Tensor:
    return torch.arange(3.0)


def _call(name: str, **given: tuple[Any, Kind]) -> Call:
    function = getattr(collectives, name)
    good = {n: value for n, (value, _) in given.items()}
    kinds = {n: kind for n, (_, kind) in given.items()}

    def make() -> dict[str, Any]:
        return {n: v.clone() if isinstance(v, Tensor) else v for n, v in good.items()}

    return Call(name, function, make, kinds)


_COMMON: Final = {"group": (None, _GROUP), "grad": ("sum", _GRAD)}

CALLS: Final = (
    _call("all_reduce", x=(_x(), _X), op=("sum", _OP), **_COMMON),
    _call("all_gather", x=(_x(), _X), dim=(0, _DIM), sizes=(None, _SIZES), **_COMMON),
    _call("all_to_all", x=(_x(), _X), dim=(0, _DIM), **_COMMON),
    _call("reduce_scatter", x=(_x(), _X), dim=(0, _DIM), sizes=(None, _SIZES), **_COMMON),
    _call("broadcast", x=(_x(), _X), src=(0, integer(0, 0)), **_COMMON),
    _call("reduce", x=(_x(), _X), dst=(0, integer(0, 0)), op=("sum", _OP), **_COMMON),
    _call("gather", x=(_x(), _X), dst=(0, integer(0, 0)), dim=(0, _DIM), **_COMMON),
    _call("scatter", x=(_x(), _X), src=(0, integer(0, 0)), dim=(0, _DIM), **_COMMON),
    _call("shard", x=(_x(), _X), dim=(0, _DIM), sizes=(None, _SIZES), **_COMMON),
    _call("shift", x=(_x(), _X), offset=(1, integer()), wrap=(True, BOOL), **_COMMON),
    _call("vary", x=(_x(), _X), **_COMMON),
    _call(
        "permute",
        x=(_x(), _X),
        route=(
            ((0, 0),),
            Kind(lambda v: v if isinstance(v, (list, tuple, dict)) and not v else REFUSED),
        ),
        **_COMMON,
    ),
    _call("barrier", group=(None, _GROUP), after=(None, _TOKEN)),
    _call("tree_all_reduce", tree=({"a": _x()}, ANYTHING), op=("sum", _OP), **_COMMON),
)
