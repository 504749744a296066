"""Collectives that differentiate, run at memory speed and explain themselves when stuck."""

from __future__ import annotations

from torchyard_collectives._api.movements import (
    all_gather,
    all_to_all,
    broadcast,
    gather,
    scatter,
    shard,
    vary,
)
from torchyard_collectives._api.pending import Pending
from torchyard_collectives._api.point_to_point import barrier, permute, recv, send, shift
from torchyard_collectives._api.reductions import all_reduce, reduce, reduce_scatter
from torchyard_collectives._api.trees import (
    tree_all_gather,
    tree_all_reduce,
    tree_broadcast,
    tree_reduce_scatter,
)
from torchyard_collectives._errors import (
    CallMismatchError,
    GradientConventionError,
    GroupError,
    TransformError,
)
from torchyard_collectives._ops.order import order
from torchyard_collectives._ops.verification import verified
from torchyard_collectives._torch_compat import load_group_defaults
from torchyard_collectives._validation.gradient import Placement, Typed
from torchyard_collectives._validation.reduction import PremulSum
from torchyard_collectives.flight._switch import switch_on
from torchyard_collectives.shm import register_backend

__all__ = [
    "CallMismatchError",
    "GradientConventionError",
    "GroupError",
    "Pending",
    "Placement",
    "PremulSum",
    "TransformError",
    "Typed",
    "all_gather",
    "all_reduce",
    "all_to_all",
    "barrier",
    "broadcast",
    "gather",
    "order",
    "permute",
    "recv",
    "reduce",
    "reduce_scatter",
    "scatter",
    "send",
    "shard",
    "shift",
    "tree_all_gather",
    "tree_all_reduce",
    "tree_broadcast",
    "tree_reduce_scatter",
    "vary",
    "verified",
]

load_group_defaults()
register_backend()
switch_on()
