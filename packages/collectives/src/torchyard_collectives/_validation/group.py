"""The forms of a group argument, converted to the arguments of the ops."""

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias

import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh

from torchyard_collectives import _simulation
from torchyard_collectives._errors import GroupError
from torchyard_collectives._torch_compat import constant, meshes_entered, own_groups

__all__ = ["Group", "Members", "resolve"]

Group: TypeAlias = (
    dist.ProcessGroup
    | DeviceMesh
    | str
    | tuple[DeviceMesh, str | int]
    | tuple[int, ...]
    | list[int]
    | None
)


class Members(NamedTuple):
    """A group as ops take it: plain values, so that a graph holds them.

    Attributes:
        rank: this process's place in the group.
        size: how many processes it has.
        name: torch's name for it.
    """

    rank: int
    size: int
    name: str


def resolve(group: Group) -> Members:
    """Return the members of a group.

    Args:
        group: None: all processes; a ProcessGroup; a DeviceMesh of one dimension; (mesh, name or
            number of a dimension); the name of a dimension of the mesh that a ``with mesh:`` makes
            current; or global ranks, for which a group exists.

    Raises:
        GroupError: there is no such group, or this process is not in it.
    """
    name, rank, size = _resolved(group)
    return Members(rank, size, name)


# What a group is does not change while a graph that holds its name is in use.
@constant
def _resolved(group: Group) -> tuple[str, int, int]:
    simulated = _simulation.current()
    if simulated is not None:
        return simulated.resolve(group)
    if not dist.is_available() or not dist.is_initialized():
        raise GroupError(
            "group: torch.distributed has no groups yet; call "
            "torch.distributed.init_process_group() first, or start the program with torchrun"
        )
    found = _process_group(group)
    rank = dist.get_rank(found)
    if rank < 0:
        raise GroupError(
            f"group: rank {dist.get_rank()} is not a member of {group}; only members may call"
        )
    return found.group_name, rank, dist.get_world_size(found)


def _process_group(group: Group) -> dist.ProcessGroup:
    given: Any = group
    match given:
        case None:
            world = dist.group.WORLD
            assert world is not None
            return world
        case dist.ProcessGroup():
            return given
        case DeviceMesh():
            return _of_mesh(given, None)
        case str():
            return _of_current_mesh(given)
        case (DeviceMesh() as mesh, str() | int() as dim):
            return _of_mesh(mesh, dim)
        case [int(), *_] if all(isinstance(rank, int) for rank in given):
            return _of_ranks(list(given))
    if given is dist.GroupMember.NON_GROUP_MEMBER:
        raise GroupError(
            f"group: rank {dist.get_rank()} is not a member of it, as new_group() said; only "
            "members may call"
        )
    raise GroupError(
        "group: expected None, a ProcessGroup, a DeviceMesh of one dimension, (mesh, dimension), "
        f"the name of a dimension of the current mesh, or global ranks, got {given!r}"
    )


def _of_mesh(mesh: DeviceMesh, dim: str | int | None) -> dist.ProcessGroup:
    names = mesh.mesh_dim_names or ()
    if dim is None:
        if mesh.ndim != 1:
            raise GroupError(
                f"group: expected a mesh of one dimension, got {mesh.ndim}: {names}; pass "
                "(mesh, name of the dimension)"
            )
        return mesh.get_group()
    known = dim in names if isinstance(dim, str) else 0 <= dim < mesh.ndim
    if not known:
        raise GroupError(f"group: the mesh has no dimension {dim!r}; it has {names or mesh.ndim}")
    return mesh.get_group(dim)


def _of_current_mesh(name: str) -> dist.ProcessGroup:
    stack = meshes_entered()
    if not stack:
        raise GroupError(
            f"group: {name!r} names a dimension of the current mesh, and there is none; call "
            f"inside of `with mesh:`, or pass (mesh, {name!r})"
        )
    return _of_mesh(stack[-1], name)


def _of_ranks(ranks: list[int]) -> dist.ProcessGroup:
    for found in own_groups():
        if dist.get_process_group_ranks(found) == ranks:
            return found
    raise GroupError(
        f"group: no group of the ranks {ranks} exists here; make it on every rank with "
        f"torch.distributed.new_group({ranks})"
    )
