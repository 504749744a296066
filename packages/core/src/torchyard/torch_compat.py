"""What torch does not publish and the core, programs, kernels and torchyard_cpu use of it.

No other module of these packages names a private part of torch. Each entry says what it stands for
and what happens where torch lacks it; :data:`PROBES` has a check of each, and :func:`missing` runs
them. All were tried on torch 2.11, 2.13, 2.14 and 2.15.

Importing this module imports torch, so the core imports it inside of functions.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from operator import attrgetter, methodcaller
from types import MappingProxyType
from typing import Any, Final, cast

import torch
from torch.autograd import forward_ad

__all__ = [
    "PROBES",
    "add_batch_dim",
    "any_requires_grad",
    "below_autograd",
    "break_graph_at_dependents",
    "break_graph_at_writes",
    "deterministic_algorithms",
    "dispatch_mode_count",
    "forward_ad_level",
    "function_mode_count",
    "functorch_levels",
    "has_cpu_kernel",
    "is_autocast_enabled_anywhere",
    "is_forward_ad_enabled",
    "is_legacy_batched",
    "is_profiling",
    "is_tracing",
    "is_transform_active",
    "is_zero_tensor",
    "mark_uncompiled",
    "missing",
    "privateuse1_backend_name",
    "remove_batch_dim",
    "vmap_nesting_level",
    "with_forward_ad",
    "without_autocast",
    "without_modes",
    "without_torch_function",
]


def _part(path: str, without: Any) -> Any:
    """Return a private part of torch, or what stands for it where torch lacks it."""
    try:
        return attrgetter(path)(torch)
    except AttributeError:
        return without


def _always() -> bool:
    """Stand for a question about modes that torch does not answer: then something is active, and
    every call goes through torch's dispatcher."""
    return True


# How many dispatch modes (torch.utils._python_dispatch) are active in this thread. Without it: no
# fast path.
dispatch_mode_count: Final[Callable[[], int]] = _part("_C._len_torch_dispatch_stack", _always)
# How many torch.overrides.TorchFunctionModes are. Without it: no fast path.
function_mode_count: Final[Callable[[], int]] = _part("_C._len_torch_function_stack", _always)
# Whether a transform of torch.func is active. Without it: no fast path.
is_transform_active: Final[Callable[[], bool]] = _part(
    "_C._are_functorch_transforms_active", _always
)
# Whether torch.jit.trace is recording. Without it: no fast path.
is_tracing: Final[Callable[[], bool]] = _part("_C._is_tracing", _always)
# Whether a profiler is running, also one that was begun in C++. Without it: no fast path.
is_profiling: Final[Callable[[], bool]] = _part("_C._autograd._profiler_enabled", _always)
# Whether autocast is on for any device. Without it: no fast path, and kernels run under autocast.
is_autocast_enabled_anywhere: Final[Callable[[], bool]] = _part(
    "_C._is_any_autocast_enabled", _always
)
# The level of forward-mode differentiation, -1 outside of any. torch.autograd.forward_ad keeps it
# in a module variable. Without it: no fast path.
forward_ad_level: Final[Callable[[], int]] = partial(
    cast("Callable[..., int]", getattr), forward_ad, "_current_level", 0
)
# torch.are_deterministic_algorithms_enabled, which is a Python function around this one. Without
# it: that function.
deterministic_algorithms: Final[Callable[[], bool]] = _part(
    "_C._get_deterministic_algorithms", torch.are_deterministic_algorithms_enabled
)


def _requires_grad_of_any(*arguments: Any) -> bool:
    def any_of(items: Sequence[Any]) -> bool:
        return any(
            item.requires_grad
            if isinstance(item, torch.Tensor)
            else isinstance(item, list | tuple) and any_of(item)
            for item in items
        )

    return any_of(arguments)


# Whether a tensor among arguments, or in their lists, requires a gradient. Without it: a function
# of Python.
any_requires_grad: Final[Callable[..., bool]] = _part(
    "_C._any_requires_grad", _requires_grad_of_any
)
# A context in which torch's dispatcher passes autograd by. torch.library has none. Without it: an
# AttributeError where an op is differentiated.
below_autograd: Final[Callable[[], AbstractContextManager[Any]]] = _part(
    "_C._AutoDispatchBelowAutograd", None
)
# A context without autocast of any device, as torch's own compiled graphs use. Without it: an
# AttributeError in calls under autocast.
without_autocast: Final[Callable[[], AbstractContextManager[Any]]] = _part(
    "_C._DisableAutocast", None
)
# A context in which subclasses of torch.Tensor are treated as plain tensors. Published as
# torch.DisableTorchFunctionSubclass from 2.0 on in torch._C alone. Without it: an AttributeError
# where packed weights are used as tensors.
without_torch_function: Final[Callable[[], AbstractContextManager[Any]]] = _part(
    "_C.DisableTorchFunctionSubclass", None
)
# Whether forward-mode differentiation is switched on in this thread. Without it: it is taken to be.
is_forward_ad_enabled: Final[Callable[[], bool]] = _part("_C._is_fwd_grad_enabled", _always)
# A context that switches forward-mode differentiation on or off. Without it: an AttributeError
# where torch.func's forward modes are nested.
with_forward_ad: Final[Callable[[bool], AbstractContextManager[Any]]] = getattr(
    forward_ad, "_set_fwd_grad_enabled", cast("Any", None)
)
# Whether a tensor is one of the batches that autograd makes for is_grads_batched. No transform of
# torch.func shows them. Without it: they are taken for plain tensors, which torch refuses to read.
is_legacy_batched: Final[Callable[[Any], bool]] = _part(
    "_C._functorch.is_legacy_batchedtensor", lambda tensor: False
)
# Whether a tensor is one of zeros that are not stored, as autograd makes for tangents. Without
# torch's own answer: False, and a kernel finds no memory and refuses the tensor.
is_zero_tensor: Final[Callable[[torch.Tensor], bool]] = (
    methodcaller("_is_zerotensor")
    if hasattr(torch.Tensor, "_is_zerotensor")
    else lambda tensor: False
)
# Make and end such a batch. Without them: an AttributeError in is_grads_batched.
add_batch_dim: Final[Callable[..., Any]] = _part("_add_batch_dim", None)
remove_batch_dim: Final[Callable[..., Any]] = _part("_remove_batch_dim", None)


def vmap_nesting_level() -> int:
    """Return how deep autograd's batches of gradients are nested around the caller, 1 for one.

    Neither of torch's two functions reads the level, but both return the one that they arrive at.
    """
    counters: Any = torch._C
    counters._vmapmode_increment_nesting()
    return int(counters._vmapmode_decrement_nesting())


def functorch_levels() -> list[str]:
    """Return the active transforms of torch.func, outermost first: ``grad``, ``jvp`` or ``vmap``.

    Other levels, such as functionalisation, are left out.
    """
    functorch: Any = torch._C._functorch
    names = {
        functorch.TransformType.Grad: "grad",
        functorch.TransformType.Jvp: "jvp",
        functorch.TransformType.Vmap: "vmap",
    }
    levels = functorch.get_interpreter_stack() or ()
    return [names[level.key()] for level in levels if level.key() in names]


@contextmanager
def without_modes() -> Iterator[None]:
    """Switch all dispatch modes off.

    Without torch's own context: an AttributeError where programs are inferred.
    """
    from torch.utils import _python_dispatch

    with _python_dispatch._disable_current_modes():
        yield


def privateuse1_backend_name() -> str:
    """Return the name that holds torch's PrivateUse1 slot, ``privateuseone`` where nobody has it.

    Without torch's own answer: ``privateuseone``.
    """
    found: Callable[[], str] = _part("_C._get_privateuse1_backend_name", lambda: "privateuseone")
    return str(found())


def has_cpu_kernel(op: str) -> bool:
    """Return whether a CPU kernel is registered for an op by its qualified name.

    Without torch's own answer: an AttributeError where an execution graph is planned.
    """
    return bool(torch._C._dispatch_has_kernel_for_dispatch_key(op, "CPU"))


def mark_uncompiled(function: Callable[..., Any], reason: str) -> bool:
    """Mark a function as one that torch.compile leaves alone, and everything that it calls.

    torch.compiler.disable does the same, but imports the compiler, which takes seconds, and adds a
    frame to every call. Return False where torch lacks a part of it: then call that.
    """
    frames: Any = getattr(getattr(torch._C, "_dynamo", None), "eval_frame", None)
    skip = getattr(frames, "set_code_exec_strategy", None)
    if skip is None:
        return False
    action = frames._FrameAction.SKIP
    # Of the frame itself, and of those that it calls.
    skip(cast("Any", function).__code__, frames._FrameExecStrategy(action, action))
    vars(function).update(
        _torchdynamo_disable=True,
        _torchdynamo_disable_msg=reason,
        _torchdynamo_disable_recursive=True,
    )
    return True


def break_graph_at_dependents(
    inputs: list[torch.Tensor], results: list[torch.Tensor], message: str, error: type[Exception]
) -> None:
    """Break the graph that Dynamo traces where one of ``results`` was computed from ``inputs``.

    A TorchFunctionMode does not see all that Dynamo computes: ``abs`` and ``math.prod`` pass it by.
    With fullgraph=True Dynamo's error shows the message, in which ``{name}`` stands for the
    function; else, and outside of a graph, ``error`` is raised with it. Without Dynamo's comptime:
    an ImportError where functions are recorded under torch.compile.
    """
    from torch._dynamo.comptime import comptime

    def refuse() -> None:
        raise error(message.replace("{name}", "a builtin function"))

    comptime(_break_graph_at_dependents, refuse)
    # Named once more: of what is not, torch 2.14 knows nothing while the line above is traced.
    del inputs, results


def _break_graph_at_dependents(context: Any) -> None:
    inputs = {proxy.node for proxy in context.get_local("inputs").as_proxy()}
    seen = set()
    stack = [proxy.node for proxy in context.get_local("results").as_proxy()]
    while stack:
        node = stack.pop()
        if any(parent in inputs for parent in node.all_input_nodes):
            message = context.get_local("message").as_python_constant()
            name = getattr(node.target, "__name__", node.target)
            context.graph_break(message.replace("{name}", str(name)))
        stack.extend(parent for parent in node.all_input_nodes if parent not in seen)
        seen.update(node.all_input_nodes)


def break_graph_at_writes(inputs: list[torch.Tensor], message: str, error: type[Exception]) -> None:
    """Break the graph that Dynamo traces where an element was assigned after the first of inputs.

    From torch 2.14 on Dynamo shows ``x[i] = y`` to no TorchFunctionMode. Otherwise as
    :func:`break_graph_at_dependents`.
    """
    from torch._dynamo.comptime import comptime

    def refuse() -> None:
        raise error(message)

    comptime(_break_graph_at_writes, refuse)
    # As above.
    del inputs


def _break_graph_at_writes(context: Any) -> None:
    inputs = {proxy.node for proxy in context.get_local("inputs").as_proxy()}
    if not inputs:
        return
    later = False
    for node in next(iter(inputs)).graph.nodes:
        later = later or node in inputs
        if later and node.op == "call_function" and node.target is operator.setitem:
            context.graph_break(context.get_local("message").as_python_constant())


def _sees_writes() -> bool:
    def broken(x: torch.Tensor) -> torch.Tensor:
        y = x + 1
        y[0] = 2
        break_graph_at_writes([x], "an element was assigned", ValueError)
        return y

    compiled = torch.compile(broken, backend="eager", fullgraph=True)
    try:
        compiled(torch.zeros(1))
    except Exception as error:  # Dynamo's own, which it does not publish
        return "an element was assigned" in str(error)
    return False


def _sees_dependents() -> bool:
    def broken(x: torch.Tensor) -> torch.Tensor:
        y = x + 1
        break_graph_at_dependents([x], [y], "depends by {name}", ValueError)
        return y

    compiled = torch.compile(broken, backend="eager", fullgraph=True)
    try:
        compiled(torch.zeros(1))
    except Exception as error:  # Dynamo's own, which it does not publish
        return "depends by add" in str(error)
    return False


def _in_contexts() -> bool:
    with below_autograd(), without_autocast(), without_torch_function(), without_modes():
        return dispatch_mode_count() == 0


def _sees_a_batch() -> bool:
    tensor = torch.zeros(2, 3)
    batched = add_batch_dim(tensor, 0, 1)
    return is_legacy_batched(batched) and not is_legacy_batched(tensor)


def _forward_levels() -> bool:
    with forward_ad.dual_level():
        inside = forward_ad_level()
    return inside == 0 and forward_ad_level() == -1


PROBES: Final = MappingProxyType[str, Callable[[], bool]](
    {
        "any_requires_grad": lambda: (
            any_requires_grad([torch.zeros(1, requires_grad=True)])
            and not any_requires_grad(torch.zeros(1))
        ),
        "break_graph_at_dependents": _sees_dependents,
        "break_graph_at_writes": _sees_writes,
        "contexts": _in_contexts,
        "deterministic_algorithms": lambda: (
            deterministic_algorithms() == torch.are_deterministic_algorithms_enabled()
        ),
        "dispatch_mode_count": lambda: dispatch_mode_count() == 0,
        "forward_ad_level": _forward_levels,
        "function_mode_count": lambda: function_mode_count() == 0,
        "functorch_levels": lambda: (
            torch.func.vmap(lambda x: x + len(functorch_levels()))(torch.zeros(1)).item() == 1
        ),
        "has_cpu_kernel": lambda: has_cpu_kernel("aten::add.Tensor"),
        "is_autocast_enabled_anywhere": lambda: not is_autocast_enabled_anywhere(),
        "is_forward_ad_enabled": lambda: is_forward_ad_enabled(),
        "is_legacy_batched": _sees_a_batch,
        "is_profiling": lambda: not is_profiling(),
        "is_tracing": lambda: not is_tracing(),
        "is_transform_active": lambda: not is_transform_active(),
        "is_zero_tensor": lambda: is_zero_tensor(torch._efficientzerotensor((2,))),
        "mark_uncompiled": lambda: mark_uncompiled(lambda: None, "a probe"),
        "privateuse1_backend_name": lambda: bool(privateuse1_backend_name()),
        "vmap_nesting_level": lambda: vmap_nesting_level() == 0 or vmap_nesting_level() == 1,
        "with_forward_ad": lambda: with_forward_ad is not None,
    }
)


def missing() -> tuple[str, ...]:
    """Return the entries that this torch does not have, or answers in another way.

    Ask where no mode is active.
    """

    def holds(probe: Callable[[], bool]) -> bool:
        try:
            return probe()
        except Exception:  # whatever torch raises where a part is another one
            return False

    return tuple(name for name, probe in PROBES.items() if not holds(probe))
