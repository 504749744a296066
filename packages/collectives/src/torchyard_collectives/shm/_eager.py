"""What torch.compile may do with classes of ours that torch holds: call their methods as they are.

torch has no public way to say so that costs nothing where nothing is compiled. What is used of it
here was tried on 2.13; where a torch lacks a part, the comment there says what follows.
"""

from __future__ import annotations

from types import FunctionType
from typing import Any, TypeVar

from torch.distributed import device_mesh

from torchyard import uncompiled

__all__ = ["eager", "readable"]

_T = TypeVar("_T", bound=type)


def eager(kind: _T) -> _T:
    """Have torch.compile run a class's methods, and what they call, uncompiled.

    After a graph break, as at ``torch.distributed.barrier``, it compiles each function that is
    called. It cannot trace a process group's own attributes, and there is nothing to gain.
    """
    for name, member in list(vars(kind).items()):
        if isinstance(member, FunctionType):
            setattr(kind, name, uncompiled("it is a call of a process group")(member))
    return kind


def readable(kind: Any, *names: str) -> None:
    """Let torch.compile read attributes of a kind of process group while it traces.

    It knows the few that it registered for all groups. What torch.distributed reads besides, as
    for the collectives of objects, is an internal error of the compiler otherwise; that error stays
    on a torch that lacks the registry.
    """
    register_groups = getattr(device_mesh, "_register_distributed_opaque_types", None)
    if register_groups is None:
        return
    from torch._library import opaque_object

    register_groups()
    info = opaque_object.get_opaque_obj_info(kind)
    if info is not None:
        real = opaque_object.MemberType.USE_REAL
        members = {**info.members, **dict.fromkeys(names, real)}
        opaque_object.register_opaque_type(kind, typ="reference", members=members)
