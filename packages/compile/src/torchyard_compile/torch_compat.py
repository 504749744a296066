"""What torch does not publish and this package uses: its record of compilations, its compiler.

Tried with torch 2.13. A torch without a part of it is refused with CompileRecordError's message.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import cache
from typing import Any, Final

import torch
from torch import fx
from torch._ops import OpOverload

from torchyard import TorchyardError

__all__ = [
    "CompileRecordError",
    "OpOverload",
    "compile_by",
    "compile_with_pass",
    "compiled_autograd",
    "failing_at_limit",
    "graph_breaks",
    "in_dispatch_mode",
    "newest",
    "recent_compilations",
    "refusals",
    "size_hint",
    "skip_frame",
    "version_of",
]


# Inductor's setting of a pass over a graph of core operators, before its own passes.
_PASS: Final = "post_grad_custom_pre_pass"


class CompileRecordError(TorchyardError, RuntimeError):
    """This torch keeps no record of compilations."""


@cache
def _part(module: str, name: str) -> Any:
    try:
        return getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise CompileRecordError(f"torch {torch.__version__} has no {module}.{name}") from error


def newest() -> object:
    """Return what stands for the newest compilation: another one where torch compiled since."""
    events = _part("torch._dynamo.utils", "get_compilation_metrics")()
    return events[-1] if events else None


def in_dispatch_mode() -> bool:
    """Return whether a TorchDispatchMode is active in which torch does not compile."""
    return bool(_part("torch.utils._python_dispatch", "any_torch_dispatch_mode_on_stack")())


def skip_frame(function: Callable[..., Any]) -> None:
    """Compile neither a function that is called uncompiled nor what it calls.

    Traced inside of a compiled one it is as before. Where a compiled function calls one that torch
    leaves uncompiled, such as ``nn.LSTM``, torch would compile what a function mode does in there,
    and hand out a dtype as a number. Of torch's function for this it is the part in C, since the
    other imports Dynamo; without it nothing is done.
    """
    frames: Any = getattr(torch._C, "_dynamo", None)
    frames = getattr(frames, "eval_frame", None)
    strategy = getattr(frames, "set_code_exec_strategy", None)
    if strategy is not None:
        action = frames._FrameAction
        strategy(function.__code__, frames._FrameExecStrategy(action.SKIP, action.SKIP))


def graph_breaks() -> Mapping[str, int]:
    """Return why graphs were broken, and how often."""
    return dict(_part("torch._dynamo.utils", "counters")["graph_break"])


def recent_compilations() -> list[Mapping[str, Any]]:
    """Return torch's record of the newest compilations, the oldest first."""
    return [vars(event) for event in _part("torch._dynamo.utils", "get_compilation_metrics")()]


def failing_at_limit() -> AbstractContextManager[object]:
    """Return a context in which reaching the limit of recompilations raises.

    Outside of it the function runs uncompiled from then on.
    """
    patch = _part("torch._dynamo", "config").patch
    found: AbstractContextManager[object] = patch(fail_on_recompile_limit_hit=True)
    return found


def refusals() -> tuple[type[Exception], ...]:
    """Return what torch raises where it would not compile a whole function."""
    names = ("Unsupported", "FailOnRecompileLimitHit", "RecompileLimitExceeded")
    exc = _part("torch._dynamo", "exc")
    return tuple(getattr(exc, name) for name in names if hasattr(exc, name))


def version_of(tensor: torch.Tensor) -> int:
    """Return how often a tensor was written to, as autograd counts it; -1 where nothing counts."""
    return -1 if tensor.is_inference() else int(tensor._version)


def compiled_autograd(compiler: Callable[[Any], Any]) -> AbstractContextManager[object]:
    """Return a context in which backward passes are graphs that ``compiler`` is given."""
    enable = _part("torch._dynamo.compiled_autograd", "_enable")
    return enable(compiler)  # type: ignore[no-any-return]


def size_hint(size: int | torch.SymInt) -> int | None:
    """Return a size; of a dynamic one that of the call that is compiled, None if there is none."""
    if isinstance(size, int):
        return size
    hint = size.node.hint
    return None if hint is None else int(hint)


def compile_with_pass(
    graph: fx.GraphModule,
    inputs: Sequence[Any],
    change: Callable[[fx.Graph], None],
    key: Callable[[], str],
    mode: str | None,
    options: Mapping[str, Any],
) -> Callable[..., Any]:
    """Compile a graph by Inductor, which calls ``change`` on what it lowers, the backward's too.

    Args:
        graph, inputs: as torch.compile gives them to a backend.
        change: changes a graph of torch's core operators in place, after a pass that the options or
            torch's settings name.
        key: returns what its changes depend on, for torch's caches.
        mode, options: as torch.compile takes them.
    """
    before = options.get(_PASS, getattr(_part("torch._inductor", "config"), _PASS))

    class Pass(_part("torch._inductor.custom_graph_pass", "CustomGraphPass")):  # type: ignore[misc]
        def __call__(self, lowered: fx.Graph) -> None:
            if before is not None:
                before(lowered)
            change(lowered)

        def uuid(self) -> object:
            if before is None:
                return key()
            # torch caches nothing where a pass has no identity.
            uuid = before.uuid() if hasattr(before, "uuid") else None
            return None if uuid is None else (uuid, key())

    return _by_inductor(graph, inputs, mode, {**options, _PASS: Pass()})


def compile_by(
    backend: str | Callable[..., Any] | None,
    graph: fx.GraphModule,
    inputs: Sequence[Any],
    options: Mapping[str, Any],
) -> Callable[..., Any]:
    """Compile a graph by a backend, as torch.compile does.

    Args:
        backend: its name, or what torch.compile would call; None: Inductor.
        graph, inputs: as torch.compile gives them to a backend.
        options: what torch.compile was given for it: mode, options, dynamic.
    """
    if backend is None:
        return _by_inductor(graph, inputs, options.get("mode"), options.get("options") or {})
    if isinstance(backend, str):
        backend = _part("torch._dynamo", "lookup_backend")(backend)
    compiler: Any = backend
    return compiler(graph, inputs, **options)  # type: ignore[no-any-return]


def _by_inductor(
    graph: fx.GraphModule, inputs: Sequence[Any], mode: str | None, options: Mapping[str, Any]
) -> Callable[..., Any]:
    modes = {} if mode in (None, "default") else _part("torch._inductor", "list_mode_options")(mode)
    compile_fx = _part("torch._inductor.compile_fx", "compile_fx")
    return compile_fx(graph, inputs, config_patches={**modes, **options})  # type: ignore[no-any-return]
