"""``reroute``: torch's functions in an unmodified model, by what the registry chooses."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final, Self, TypeVar

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.optimizer import register_optimizer_step_pre_hook
from torch.overrides import TorchFunctionMode

from torchyard import UnsupportedError, active_transform, arguments
from torchyard_compile import torch_compat
from torchyard_compile._calls import Calls, CallSite
from torchyard_compile._choice import LeftAlone
from torchyard_compile._reroute._attention import attention
from torchyard_compile._reroute._call import Rerouting, check_installed, choice
from torchyard_compile._reroute._kernels import addmm, linear, recurrent, topk
from torchyard_compile._reroute._optimizer import ReroutedSteps, note_step
from torchyard_compile._reroute._verification import verify

__all__ = ["Reroute", "reroute"]

_F = TypeVar("_F", bound=Callable[..., Any])
_Route = Callable[..., Rerouting]

# torch's function -> its name, the package of the op of ours, and how a call is rerouted.
_ROUTES: Final[Mapping[Any, tuple[str, str, _Route]]] = MappingProxyType(
    {
        nn.functional.scaled_dot_product_attention: (
            *("scaled_dot_product_attention", "torchyard_attention"),
            attention,
        ),
        nn.functional.linear: ("linear", "torchyard_kernels", linear),
        torch.addmm: ("addmm", "torchyard_kernels", addmm),
        torch.topk: ("topk", "torchyard_kernels", topk),
        Tensor.topk: ("topk", "torchyard_kernels", topk),
        **{
            getattr(torch, kind): (kind, "torchyard_kernels", recurrent(kind))
            for kind in ("lstm", "gru", "rnn_tanh", "rnn_relu")
        },
    }
)


def reroute(model: nn.Module | Optimizer | None = None, *, verify: bool = False) -> Reroute:
    """Send calls of torch's functions to the ops of torchyard where the registry prefers those.

    A context manager, or ``@reroute()`` before a function; given a model, it holds in every call of
    the model, and given an optimiser in every step of it, until ``undo()``. Rerouted are
    ``scaled_dot_product_attention`` and ``linear`` of torch.nn.functional, ``torch.addmm``,
    ``torch.topk``, and what ``nn.LSTM``, ``nn.GRU`` and ``nn.RNN`` call, where an implementation of
    a device's plugin is chosen; all others torch computes as before, and ``explain()`` says why.
    Results differ by rounding, and of equal elements ``topk`` returns the first ones. Calls inside
    of torch.compile are the compiler's. Steps of torch.optim's Adam, AdamW, Adafactor and Muon are
    those of ``torchyard_kernels.optim``, with the same groups and state.

    Args:
        model: whose calls or steps; None: the calls inside of the ``with`` or of the function. An
            optimiser is rerouted before a scheduler is made of it.
        verify: compute each rerouted call by torch as well and in float64, for tests.

    Raises:
        TypeError: an argument does not fit.
        ValueError: an optimiser of another type, or one whose steps were replaced already.
        RerouteMismatchError: in calls, with ``verify``: a result is further from float64's than
            torch's own may be.
    """
    found = Reroute(verify=verify)
    if model is None:
        return found
    if isinstance(model, Optimizer):
        found._attach_steps(model)
        return found
    arguments.instance(
        *("reroute", "model", model, nn.Module, "a torch.nn.Module or a torch.optim.Optimizer"),
        remedy="before a function write @reroute()",
    )
    found._attach(model)
    return found


class Reroute:
    """Calls of torch's functions that ops of torchyard may compute; see :func:`reroute`."""

    def __init__(self, *, verify: bool) -> None:
        self._verify = arguments.boolean("reroute", "verify", verify)
        self._calls = Calls()
        self._entered = threading.local()
        self._hooks: list[Any] = []

    def __enter__(self) -> Self:
        self._enter()
        thread = threading.get_ident()

        def note(optimizer: Optimizer, args: Any, kwargs: Any) -> None:
            # The hook is of all threads.
            if threading.get_ident() == thread:
                note_step(optimizer, self._calls)

        self._hooks_of_steps().append(register_optimizer_step_pre_hook(note))
        return self

    def __exit__(self, *exception: object) -> None:
        self._hooks_of_steps().pop().remove()
        self._leave(*exception)

    def __call__(self, function: _F) -> _F:
        """Return a function inside of which calls are rerouted."""
        arguments.function("reroute", "function", function)

        @functools.wraps(function)
        def run(*args: Any, **kwargs: Any) -> Any:
            with self:
                return function(*args, **kwargs)

        return run  # type: ignore[return-value]

    def explain(self) -> tuple[CallSite, ...]:
        """Return each form of call that there was, what computed it, and why."""
        return self._calls.sites()

    def undo(self) -> None:
        """Leave the model or the optimiser as it was."""
        for hook in self._hooks:
            hook.remove()
        self._hooks.clear()

    def _attach(self, model: nn.Module) -> None:
        def enter(module: nn.Module, args: Any) -> None:
            self._enter()

        def leave(module: nn.Module, args: Any, output: Any) -> None:
            self._leave(None, None, None)

        # Around every other hook of the model, and after an error too.
        self._hooks = [
            model.register_forward_pre_hook(enter, prepend=True),
            model.register_forward_hook(leave, always_call=True),
        ]

    def _attach_steps(self, optimizer: Optimizer) -> None:
        self._hooks = [ReroutedSteps(optimizer, self._calls, verify=self._verify)]

    def _enter(self) -> None:
        mode = _Mode(self._calls, verify=self._verify)
        mode.__enter__()  # type: ignore[no-untyped-call]
        self._entered_by_thread("modes").append(mode)

    def _leave(self, *exception: object) -> None:
        self._entered_by_thread("modes").pop().__exit__(*exception)

    def _hooks_of_steps(self) -> list[Any]:
        return self._entered_by_thread("hooks")

    def _entered_by_thread(self, what: str) -> list[Any]:
        found: list[Any] = vars(self._entered).setdefault(what, [])
        return found


class _Mode(TorchFunctionMode):
    def __init__(self, calls: Calls, *, verify: bool) -> None:
        super().__init__()
        self._calls = calls
        self._verify = verify

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        # First: Dynamo, which traces this, knows no table of functions.
        if torch.compiler.is_compiling():
            return func(*args, **kwargs)
        route = _ROUTES.get(func)
        if route is None:
            return func(*args, **kwargs)
        name, package, make = route
        form: Any = None
        try:
            check_installed(package)
            if transform := active_transform(args):
                raise LeftAlone(f"inside of {transform}")
            try:
                rerouting = make(*args, **kwargs)
            except TypeError as error:
                raise LeftAlone(f"arguments that are not rerouted: {error}") from error
            form = rerouting.form
            implementation, reason = choice(rerouting)
        except LeftAlone as why:
            self._calls.note(name, form, "", str(why))
            return func(*args, **kwargs)
        try:
            found = rerouting.run()
        except (TypeError, ValueError, UnsupportedError) as error:
            # What torch says of such a call is for torch to say.
            self._calls.note(name, form, "", f"the op of ours refuses it: {error}")
            return func(*args, **kwargs)
        self._calls.note(name, form, implementation, reason)
        if self._verify:
            verify(name, func, args, kwargs, found)
        return found


torch_compat.skip_frame(_Mode.__torch_function__)
