"""Calls of torchyard_collectives' public functions that are right, in a group of this process."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import torch
import torch.distributed as dist
from torch import Tensor

import torchyard_collectives as collectives
from tests.fuzz.harness import Call
from tests.fuzz.kinds import ANYTHING, BOOL, REFUSED, Kind, choice, integer, number, tensor

__all__ = ["CALLS", "prepare"]

_ANY: Final = (
    *("long", "uint8", "double", "half", "complex", "bool"),
    *("another dimension", "a dimension less"),
)
_X: Final = tensor(*_ANY, "one element", "empty")
# A message without values is as right as a collective of them, but _alone gives no result back.
_MESSAGE: Final = tensor(*_ANY, "one element", "empty", "meta")
_GROUP: Final = Kind(lambda v: None if v is None else REFUSED)
_TOKEN: Final = Kind(lambda v: v if v is None or isinstance(v, Tensor) else REFUSED)
_SIZES: Final = Kind(lambda v: None if v is None else REFUSED)
_GRAD: Final = choice("sum", "replicated")
_OP: Final = choice("sum", "avg", "max", "min", "product")
_DIM: Final = integer(-1, 0)


def prepare() -> None:
    """Make a group of this process alone."""
    if not dist.is_initialized():
        store = dist.HashStore()  # type: ignore[attr-defined]
        dist.init_process_group("gloo", store=store, rank=0, world_size=1)


def _x() -> Tensor:
    return torch.arange(3.0)


def _alone(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that ends where it would send to this rank, the only one there is."""

    def run(**given: Any) -> None:
        try:
            function(**given)
        except ValueError as error:
            if "which is this one" not in str(error):
                raise

    return run


def _call(
    name: str,
    wrapped: Callable[[Callable[..., Any]], Callable[..., Any]] = lambda function: function,
    /,
    **given: tuple[Any, Kind],
) -> Call:
    function = wrapped(getattr(collectives, name))
    good = {n: value for n, (value, _) in given.items()}
    kinds = {n: kind for n, (_, kind) in given.items()}

    def make() -> dict[str, Any]:
        return {n: v.clone() if isinstance(v, Tensor) else v for n, v in good.items()}

    return Call(f"torchyard_collectives.{name}", function, make, kinds)


_AFTER: Final = tensor(*_ANY, "one element", "empty", "double", "half", "long", "uint8")
_COMMON: Final = {"group": (None, _GROUP), "grad": ("sum", _GRAD)}
_ASYNC: Final = {"async_op": (False, BOOL)}

CALLS: Final = (
    _call("all_reduce", x=(_x(), _X), op=("sum", _OP), **_COMMON, **_ASYNC),
    _call(
        "all_gather",
        x=(_x(), _X),
        dim=(0, _DIM),
        sizes=(None, _SIZES),
        **_COMMON,
        **_ASYNC,
    ),
    _call(
        "all_to_all",
        x=(_x(), _X),
        dim=(0, _DIM),
        concat_dim=(None, Kind(lambda v: v if v is None else _DIM.stands_for(v))),
        input_sizes=(None, _SIZES),
        output_sizes=(None, _SIZES),
        **_COMMON,
        **_ASYNC,
    ),
    _call(
        "reduce_scatter",
        x=(_x(), _X),
        dim=(0, _DIM),
        op=("sum", _OP),
        sizes=(None, _SIZES),
        **_COMMON,
        **_ASYNC,
    ),
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
    _call("tree_all_gather", tree=({"a": _x()}, ANYTHING), dim=(0, _DIM), **_COMMON),
    _call("tree_broadcast", tree=({"a": _x()}, ANYTHING), src=(0, integer(0, 0)), **_COMMON),
    _call(
        "tree_reduce_scatter",
        tree=({"a": _x()}, ANYTHING),
        dim=(0, _DIM),
        op=("sum", _OP),
        **_COMMON,
    ),
    Call(
        "torchyard_collectives.order",
        lambda x, after: collectives.order(x, after),
        lambda: {"x": _x(), "after": torch.tensor(0.0)},
        {"x": tensor(*_ANY, "one element", "empty"), "after": _AFTER},
    ),
    _call(
        "send", _alone, x=(_x(), _MESSAGE), dst=(0, integer(0, 0)), after=(None, _TOKEN), **_COMMON
    ),
    _call(
        "recv",
        _alone,
        like=(_x(), _MESSAGE),
        src=(0, integer(0, 0)),
        after=(None, _TOKEN),
        **_COMMON,
    ),
    Call(
        "torchyard_collectives.PremulSum",
        lambda factor: collectives.all_reduce(_x(), collectives.PremulSum(factor), grad="sum"),
        lambda: {"factor": 2.0},
        # A tensor is a factor as well, where it broadcasts to x's shape.
        {"factor": Kind(lambda v: v if isinstance(v, Tensor) else number().stands_for(v))},
        {"factor": "op"},
    ),
    Call(
        "torchyard_collectives.Typed",
        lambda **given: collectives.all_reduce(_x(), grad=collectives.Typed(**given)),
        lambda: {"src": "partial", "dst": "replicated"},
        {"src": choice("partial"), "dst": choice("replicated")},
        {"src": "grad", "dst": "grad"},
    ),
)
