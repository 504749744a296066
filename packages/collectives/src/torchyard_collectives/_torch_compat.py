"""What torch does not publish and this package uses of it.

No other module of the package names a private part of torch. Each entry says what it is for and
what happens where torch lacks it; :data:`PROBES` has a check of each, and :func:`missing` runs
them. All were tried on torch 2.13.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from datetime import timedelta
from types import FrameType, MappingProxyType
from typing import Any, Final, ParamSpec, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

# Options of calls and the kinds of groups, with the names that the C++ class has, and the stores:
# torch.distributed uses them as values and declares none of them. Without them: an ImportError.
from torch._C import _distributed_c10d as c10d
from torch._C._distributed_c10d import PrefixStore, Store

# Autograd rules at one level of torch.func: torch's own tests of extensions use it, and nothing
# else runs a Function inside a rule for the dispatcher. Without it: an ImportError.
from torch._functorch.utils import enable_single_level_autograd_function
from torch.autograd import forward_ad, profiler

# What functorch's own rules derive from: Function itself hands a call to those rules, which start
# above the dispatcher. Without it: an ImportError.
from torch.autograd.function import _SingleLevelFunction as SingleLevelFunction
from torch.distributed import Backend, ProcessGroup, device_mesh, distributed_c10d

# Flattens lists, tuples, dicts and what users registered with it. Without it: an ImportError.
from torch.utils._pytree import tree_flatten, tree_unflatten

__all__ = [
    "GROUP_NAMING",
    "GROUP_REGISTRATION",
    "PROBES",
    "DispatchKeySet",
    "Modes",
    "PrefixStore",
    "Replaceable",
    "SingleLevelFunction",
    "Store",
    "apply_at_one_level",
    "backend_creator",
    "backends_of",
    "below_autograd",
    "below_backend_select",
    "c10d",
    "constant",
    "default_store",
    "group_by_name",
    "group_name",
    "has_no_values",
    "is_view",
    "let_compiler_read",
    "load_group_defaults",
    "meshes_entered",
    "missing",
    "new_backend",
    "own_groups",
    "profiler_runs",
    "reduce_op",
    "sized_event",
    "tree_flatten",
    "tree_unflatten",
    "unregister",
    "with_timeout",
    "wrap_backend",
]

P = ParamSpec("P")
R = TypeVar("R")

# Whether gradients and tangents are recorded.
Modes = tuple[bool, bool]

# torch's stubs lack most of what is needed of it here.
_C10D: Final[Any] = distributed_c10d
_C10D_FILE: Final = str(distributed_c10d.__file__)
DispatchKeySet = torch._C.DispatchKeySet


def apply_at_one_level(function: Any, *args: Any) -> Any:
    """Call an autograd Function in a rule for the dispatcher.

    Without torch's answer to whether torch.func is active: an AttributeError in every call.

    Args:
        function: a SingleLevelFunction that takes a Modes first, or None outside of torch.func.
        *args: the other arguments.
    """
    if not torch._C._are_functorch_transforms_active():
        return function.apply(None, *args)
    modes = (torch.is_grad_enabled(), torch._C._is_fwd_grad_enabled())
    with enable_single_level_autograd_function():
        return function.apply(modes, *args)


@contextmanager
def below_autograd(modes: Modes | None) -> Iterator[None]:
    """Let the dispatcher go on below autograd's keys; with modes, levels below differentiate too.

    torch.autograd.Function runs its forward without them. Without torch's own contexts: an
    AttributeError in every call.
    """
    with torch._C._AutoDispatchBelowAutograd():
        if modes is None:
            yield
            return
        with torch.set_grad_enabled(modes[0]), forward_ad._set_fwd_grad_enabled(modes[1]):
            yield


def is_view(tensor: Tensor) -> bool:
    """Whether a tensor is a view of another; without torch's answer: an AttributeError."""
    return bool(tensor._is_view())


def load_group_defaults() -> None:
    """Import a module of torch that, imported later, keeps the default group for ever.

    ``torch.distributed.nn.functional`` has the default group in default arguments. torch.compile
    and the optimisers import it: where they do so after the group was made,
    destroy_process_group() does not destroy it. Its threads then run until the interpreter has
    gone, and one that frees a tensor at that moment ends the process with SIGABRT. Imported while
    there is no group, its default arguments are None. Without it: nothing to do.
    """
    if dist.is_initialized():
        return
    try:
        import torch.distributed.nn.functional  # noqa: F401
    except ImportError:
        return


def own_groups() -> list[ProcessGroup]:
    """Return this process's groups, which torch.distributed lists nowhere else.

    Without it: an AttributeError for a group named by its ranks, and in the recorder.
    """
    return list(_C10D._world.pg_map)


def group_by_name(name: str) -> ProcessGroup:
    """Return the group of a name, as ops carry it; without it: an AttributeError in every op."""
    group: ProcessGroup = _C10D._resolve_process_group(name)
    return group


def group_name(group: ProcessGroup) -> str:
    """Return torch's name of a group, also of one made in Python; empty where it has none."""
    try:
        return str(group.group_name)
    except RuntimeError:
        names = getattr(getattr(_C10D, "_world", None), "pg_names", {})
        return str(names.get(group, ""))


def backends_of(group: ProcessGroup) -> str:
    """Return a group's backends, written ``device:backend,device:backend``.

    Without torch's table of them: an AttributeError for a tensor that is not in CPU memory.
    """
    return str(_C10D._world.pg_backend_config.get(group, ""))


def default_store() -> Any:
    """Return the default group's store; without it: ranks' recorders exchange no dumps."""
    return _C10D._get_default_store()


def meshes_entered() -> Sequence[device_mesh.DeviceMesh]:
    """Return the meshes of the ``with`` blocks around the caller, outermost first.

    Without it: an AttributeError where a call names no group.
    """
    return device_mesh._mesh_resources.mesh_stack


def backend_creator(name: str) -> Any:
    """Return what makes groups of a backend that was registered from outside of torch, or None.

    Without it: an AttributeError when this package is imported.
    """
    return Backend._plugins.get(name.upper())


def with_timeout(options: Any, timeout: timedelta) -> Any:
    """Return a vendor's options of groups with a timeout; without it: torch's default."""
    options._timeout = timeout
    return options


def new_backend(
    creator: Any, store: Store, rank: int, size: int, timeout: timedelta, name: str
) -> Any:
    """Return a new backend of a registered creator, as torch.distributed makes it.

    Without torch's own options: an AttributeError for creators that were registered with
    ``extended_api``.
    """
    if not creator.extended_api:
        return creator.creator_fn(store, rank, size, timeout)
    options = c10d._DistributedBackendOptions()
    options.store, options.group_rank, options.group_size = store, rank, size
    options.timeout, options.group_id = timeout, name
    return creator.creator_fn(options, None)


def wrap_backend(
    made: Any, store: Store, rank: int, size: int, device: torch.device, backend: str, name: str
) -> ProcessGroup:
    """Return a process group of one backend for one kind of device.

    Without torch's own registration: an AttributeError for a tensor that is not in CPU memory.
    """
    group = ProcessGroup(store, rank, size)
    kind = Backend.backend_type_map[backend]
    group._set_default_backend(kind)
    group._register_backend(torch.device(device.type), kind, made)
    group._set_group_name(_C10D.GroupName(f"{name}/{device.type}"))
    return group


def constant(function: Callable[P, R]) -> Callable[P, R]:
    """Have torch.compile call a function while it traces, and use what it returned.

    ``torch.compiler.assume_constant_result`` sets the same mark, but imports the compiler: seconds,
    hundreds of modules and a changed list of warning filters, for every plugin that imports a
    contract of this package. Where torch reads another mark: graph breaks.
    """
    setattr(function, "_dynamo_marked_constant", True)  # noqa: B010
    return function


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


# An event with the sizes of its inputs; without it, events have none.
_SIZED: Final[Any] = getattr(getattr(torch._C, "_profiler", None), "_RecordFunctionFast", None)


def profiler_runs() -> bool:
    """Whether a profiler runs in this thread; False on a torch that does not say."""
    return bool(getattr(profiler, "_is_profiler_enabled", False))


def sized_event(name: str, tensors: Sequence[Tensor]) -> AbstractContextManager[Any]:
    """Return a context that is one event of the profiler, with the sizes of its inputs."""
    if _SIZED is None:
        return profiler.record_function(name)
    made: AbstractContextManager[Any] = _SIZED(name, tensors)
    return made


def below_backend_select() -> DispatchKeySet:
    """Return the dispatch keys below BackendSelect, for a kernel in front of all devices'.

    Without it: an AttributeError when the recorder is switched on.
    """
    return torch._C._dispatch_keyset_full_after(torch._C.DispatchKey.BackendSelect)


def has_no_values(keys: DispatchKeySet) -> bool:
    """Whether a call of these keys is one on meta tensors."""
    return keys.has(torch._C.DispatchKey.Meta)


def unregister(library: Any) -> None:
    """Remove the kernels of a torch.library.Library; without it: they stay until it is collected.

    The recorder then goes on after disable().
    """
    destroy = getattr(library, "_destroy", None)
    if destroy is not None:
        destroy()


class Replaceable:
    """A function of torch.distributed in whose place the recorder puts one of its own.

    Args:
        name: the function's. Where torch lacks it, nothing is replaced.
    """

    def __init__(self, name: str) -> None:
        self._name = name

    def current(self) -> Callable[..., Any] | None:
        """Return what torch calls now."""
        found: Callable[..., Any] | None = getattr(_C10D, self._name, None)
        return found

    def replace(self, function: Callable[..., Any]) -> None:
        """Have torch call another function."""
        setattr(_C10D, self._name, function)


# Called with the name and the object of every new group. Without it: groups that are made in Python
# after the recorder was switched on are not recorded.
GROUP_REGISTRATION: Final = Replaceable("_register_process_group")
# Called with the ranks of a new group before it is made. Without it: ranks that did not make a
# group are not named in a verdict.
GROUP_NAMING: Final = Replaceable("_process_group_name")


def reduce_op(frame: FrameType | None) -> int | None:
    """Return the reduction of the torch.distributed function that calls, or None.

    An operator receives it as an object that Python cannot read, so it is read from the variable
    ``opts`` of the function above. Without that variable, as for calls from C++: None.
    """
    steps = 3
    while frame is not None and steps:
        if frame.f_code.co_filename == _C10D_FILE:
            reduction = getattr(frame.f_locals.get("opts"), "reduceOp", None)
            # As a number, because torch's object is slow to compare.
            return None if reduction is None else int(reduction.op)
        frame = frame.f_back
        steps -= 1
    return None


def _in_contexts() -> bool:
    with below_autograd(None), below_autograd((True, False)):
        return not torch._C._are_functorch_transforms_active()


def _marks_constants() -> bool:
    marked, ours = (lambda: None), (lambda: None)
    torch.compiler.assume_constant_result(marked)  # type: ignore[no-untyped-call]
    return vars(constant(ours)) == vars(marked) != {}


PROBES: Final = MappingProxyType[str, Callable[[], bool]](
    {
        "backend_creator": lambda: backend_creator("no such backend") is None,
        "backends_of": lambda: isinstance(_C10D._world.pg_backend_config, dict),
        "below_autograd": _in_contexts,
        "below_backend_select": lambda: (
            not has_no_values(below_backend_select() & DispatchKeySet(torch._C.DispatchKey.CPU))
        ),
        "c10d": lambda: all(
            hasattr(c10d, f"{name}Options") for name in ("Allreduce", "Broadcast", "Barrier")
        ),
        "constant": _marks_constants,
        "default_store": lambda: callable(_C10D._get_default_store),
        "group_by_name": lambda: callable(_C10D._resolve_process_group),
        "group_name": lambda: isinstance(_C10D._world.pg_names, dict),
        "group_naming": lambda: GROUP_NAMING.current() is not None,
        "group_registration": lambda: GROUP_REGISTRATION.current() is not None,
        "is_view": lambda: is_view(torch.zeros(2)[:1]) and not is_view(torch.zeros(2)),
        "let_compiler_read": lambda: hasattr(device_mesh, "_register_distributed_opaque_types"),
        "meshes_entered": lambda: not meshes_entered(),
        "new_backend": lambda: c10d._DistributedBackendOptions() is not None,
        "own_groups": lambda: isinstance(own_groups(), list),
        "profiler_runs": lambda: hasattr(profiler, "_is_profiler_enabled"),
        "sized_event": lambda: _SIZED is not None,
        "tree_flatten": lambda: tree_flatten([1, (2, 3)])[0] == [1, 2, 3],
        "unregister": lambda: hasattr(torch.library.Library, "_destroy"),
        "wrap_backend": lambda: all(
            hasattr(ProcessGroup, name)
            for name in ("_set_default_backend", "_register_backend", "_set_group_name")
        ),
    }
)


def missing() -> tuple[str, ...]:
    """Return the entries that this torch does not have, or answers in another way."""

    def holds(probe: Callable[[], bool]) -> bool:
        try:
            return probe()
        except Exception:  # whatever torch raises where a part is another one
            return False

    return tuple(name for name, probe in PROBES.items() if not holds(probe))
