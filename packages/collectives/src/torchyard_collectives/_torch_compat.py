"""What this package uses of torch that is not public, and what follows where a torch lacks it.

All of it was tried on torch 2.13. The flight recorder's hold on torch's calls is not here but in
``flight/_intercept.py`` and ``flight/_creations.py``, since to take that hold is all they do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Final

import torch
import torch.distributed as dist
from torch import Tensor

# Autograd rules at one level of torch.func: torch's own tests of extensions use it, and there is no
# other way to have a Function inside of a rule for the dispatcher. Needed: an import error without.
from torch._functorch.utils import enable_single_level_autograd_function
from torch.autograd import forward_ad, profiler
from torch.distributed import device_mesh

__all__ = [
    "Modes",
    "apply_at_one_level",
    "below_autograd",
    "let_compiler_read",
    "meshes_entered",
    "own_groups",
    "profiler_runs",
    "sized_event",
]

# Whether gradients and tangents are recorded.
Modes = tuple[bool, bool]

# An event with the sizes of its inputs; without it, events have none.
_SIZED: Final[Any] = getattr(getattr(torch._C, "_profiler", None), "_RecordFunctionFast", None)


def apply_at_one_level(apply: Callable[..., Any], *args: Any) -> Any:
    """Call an autograd Function in a rule for the dispatcher.

    Args:
        apply: the Function's, whose first argument is a Modes, or None outside of torch.func.
        *args: the other arguments.
    """
    # Not public, and needed: whether torch.func is at work, and whether it records tangents.
    if not torch._C._are_functorch_transforms_active():
        return apply(None, *args)
    modes = (torch.is_grad_enabled(), torch._C._is_fwd_grad_enabled())
    with enable_single_level_autograd_function():
        return apply(modes, *args)


@contextmanager
def below_autograd(modes: Modes | None) -> Iterator[None]:
    """Let the dispatcher go on below autograd's keys; with modes, levels below differentiate too.

    torch.autograd.Function runs its forward without them.
    """
    # Not public, and needed: the guard that C++ kernels use, and the switch of forward mode.
    with torch._C._AutoDispatchBelowAutograd():
        if modes is None:
            yield
            return
        with torch.set_grad_enabled(modes[0]), forward_ad._set_fwd_grad_enabled(modes[1]):
            yield


def own_groups() -> list[dist.ProcessGroup]:
    """Return the process groups that this process is in."""
    # torch.distributed lists them nowhere else. Needed.
    return list(dist.distributed_c10d._world.pg_map)


def meshes_entered() -> Sequence[device_mesh.DeviceMesh]:
    """Return the meshes of the ``with`` blocks around the caller, outermost first."""
    # torch has the innermost one for DTensor alone. Needed.
    return device_mesh._mesh_resources.mesh_stack


def profiler_runs() -> bool:
    """Whether a profiler runs in this thread; False on a torch that does not say."""
    return bool(getattr(profiler, "_is_profiler_enabled", False))


def sized_event(name: str, tensors: Sequence[Tensor]) -> AbstractContextManager[Any]:
    """Return a context that is one event of the profiler, with the sizes of its inputs."""
    if _SIZED is None:
        return profiler.record_function(name)
    made: AbstractContextManager[Any] = _SIZED(name, tensors)
    return made


def let_compiler_read(kind: Any, *names: str) -> None:
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
