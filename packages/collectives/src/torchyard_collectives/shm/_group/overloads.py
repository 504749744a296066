"""The forms in which a process group's methods may be called, as torch's binding in C++ has them.

torch.distributed calls with lists of tensors and options. The binding also takes one tensor, with
an operation, a root or a timeout beside it; DDP, RPC and users call that. A group written in Python
replaces the binding's method with all its forms, so it has to tell them apart.

Each form is a function with the names and defaults of the binding's signature, that returns the
arguments of the form with options.
"""

from __future__ import annotations

import functools
import inspect
import operator
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any, Final, TypeAlias

from torch import Tensor
from torch.distributed import ReduceOp, Work

from torchyard_collectives._torch_compat import c10d, profiler_runs
from torchyard_collectives.shm._group.profiling import event

__all__ = ["Forms", "overloaded"]

Method: TypeAlias = Callable[..., Work]
_Form: TypeAlias = Callable[..., tuple[Any, ...]]
_SUM: Final[Any] = ReduceOp.SUM


def _options(kind: Any, timeout: timedelta | None, op: Any = None, root: int | None = None) -> Any:
    made = kind()
    if timeout is not None:
        made.timeout = timeout
    if op is not None:
        made.reduceOp = op if isinstance(op, ReduceOp) else ReduceOp(op)
    if root is not None:
        made.rootRank = operator.index(root)
    return made


# The forms without options. What is one tensor, or one list less, here, is a list of one there.


def _all_reduce(
    tensor: Tensor, op: ReduceOp = _SUM, timeout: timedelta | None = None
) -> tuple[Any, ...]:
    return [tensor], _options(c10d.AllreduceOptions, timeout, op)


def _all_reduce_list(
    tensors: list[Tensor], op: ReduceOp = _SUM, timeout: timedelta | None = None
) -> tuple[Any, ...]:
    return tensors, _options(c10d.AllreduceOptions, timeout, op)


def _broadcast(tensor: Tensor, root: int, timeout: timedelta | None = None) -> tuple[Any, ...]:
    return [tensor], _options(c10d.BroadcastOptions, timeout, root=root)


def _reduce(
    tensor: Tensor, root: int, op: ReduceOp = _SUM, timeout: timedelta | None = None
) -> tuple[Any, ...]:
    return [tensor], _options(c10d.ReduceOptions, timeout, op, root)


def _all_gather(
    output_tensors: list[Tensor], input_tensor: Tensor, timeout: timedelta | None = None
) -> tuple[Any, ...]:
    return [output_tensors], [input_tensor], _options(c10d.AllgatherOptions, timeout)


def _gather(
    output_tensors: list[Tensor],
    input_tensor: Tensor,
    root: int,
    timeout: timedelta | None = None,
) -> tuple[Any, ...]:
    return [output_tensors], [input_tensor], _options(c10d.GatherOptions, timeout, root=root)


def _scatter(
    output_tensor: Tensor,
    input_tensors: list[Tensor],
    root: int,
    timeout: timedelta | None = None,
) -> tuple[Any, ...]:
    return [output_tensor], [input_tensors], _options(c10d.ScatterOptions, timeout, root=root)


def _reduce_scatter(
    output: Tensor,
    input: list[Tensor],
    op: ReduceOp = _SUM,
    timeout: timedelta | None = None,
) -> tuple[Any, ...]:
    return [output], [input], _options(c10d.ReduceScatterOptions, timeout, op)


def _all_to_all_single(
    output: Tensor,
    input: Tensor,
    output_split_sizes: list[int],
    input_split_sizes: list[int],
    timeout: timedelta | None = None,
) -> tuple[Any, ...]:
    made = _options(c10d.AllToAllOptions, timeout)
    return output, input, output_split_sizes, input_split_sizes, made


def _barrier(timeout: timedelta | None = None) -> tuple[Any, ...]:
    return (_options(c10d.BarrierOptions, timeout),)


class Forms:
    """The forms of one method.

    Args:
        title: the operation, in the profiler.
        options: the class of its options.
        arguments: the form with options: the others' names, and what these are.
        others: the forms without options.
    """

    def __init__(self, title: str, options: Any, arguments: dict[str, str], *others: _Form) -> None:
        self.title = title
        self.options = options
        # Which argument holds what is sent.
        self.inputs = min(1, max(0, len(arguments) - 1))
        self.count = len(arguments) + 1
        kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
        own = [inspect.Parameter(name, kind, annotation=a) for name, a in arguments.items()]
        # torch hands on None where a caller does.
        own.append(inspect.Parameter("opts", kind, default=None, annotation="options"))
        self._own = inspect.Signature(own)
        self._others = [(inspect.signature(form), form) for form in others]

    def bind(self, name: str, args: Sequence[Any], named: dict[str, Any]) -> tuple[Any, ...]:
        """Return a call's arguments in the form with options.

        Raises:
            TypeError: the call has none of the forms.
        """
        if len(args) == self.count and not named and type(args[-1]) is self.options:
            return tuple(args)
        if (bound := self._fitting(self._own, args, named)) is not None:
            *tensors, given = bound.values()
            return (*tensors, self.options() if given is None else given)
        for signature, form in self._others:
            if (bound := self._fitting(signature, args, named)) is not None:
                return form(**bound)
        forms = [self._own, *(signature for signature, _ in self._others)]
        texts = " or ".join(f"({', '.join(form.parameters)})" for form in forms)
        given = [type(value).__name__ for value in args]
        given += [f"{key}={type(value).__name__}" for key, value in named.items()]
        raise TypeError(
            f"{name}: expected arguments {texts} with tensors, lists of them and "
            f"{self.options.__name__} as torch.distributed.ProcessGroup.{name} has them, got "
            f"({', '.join(given)})"
        )

    def _fitting(
        self, signature: inspect.Signature, args: Sequence[Any], named: dict[str, Any]
    ) -> dict[str, Any] | None:
        try:
            bound = signature.bind(*args, **named)
        except TypeError:
            # It has other names, or more or fewer; the next form may have these.
            return None
        for name, value in bound.arguments.items():
            if not self._fits(signature.parameters[name].annotation, value):
                return None
        bound.apply_defaults()
        return dict(bound.arguments)

    def _fits(self, annotation: str, value: Any) -> bool:
        if annotation == "options":
            return value is None or isinstance(value, self.options)
        return _CHECKS[annotation](value)


def _is_tensor(value: Any) -> bool:
    return isinstance(value, Tensor)


def _is_list_of(check: Callable[[Any], bool]) -> Callable[[Any], bool]:
    def is_list(value: Any) -> bool:
        return isinstance(value, (list, tuple)) and all(map(check, value))

    return is_list


def _is_integer(value: Any) -> bool:
    return hasattr(value, "__index__") and not isinstance(value, (bool, Tensor))


# By what the forms' signatures say.
_CHECKS: Final[dict[str, Callable[[Any], bool]]] = {
    "Tensor": _is_tensor,
    "list[Tensor]": _is_list_of(_is_tensor),
    "list[list[Tensor]]": _is_list_of(_is_list_of(_is_tensor)),
    "list[int]": _is_list_of(_is_integer),
    "int": _is_integer,
    "ReduceOp": lambda value: isinstance(value, (ReduceOp, ReduceOp.RedOpType)),
    "timedelta | None": lambda value: value is None or isinstance(value, timedelta),
}

_OPTS: Final = frozenset({"opts"})
_LIST: Final = "list[Tensor]"
_LISTS: Final = "list[list[Tensor]]"

FORMS: Final = {
    "allreduce": Forms(
        "all_reduce", c10d.AllreduceOptions, {"tensors": _LIST}, _all_reduce_list, _all_reduce
    ),
    "allreduce_coalesced": Forms("all_reduce", c10d.AllreduceCoalescedOptions, {"tensors": _LIST}),
    "broadcast": Forms("broadcast", c10d.BroadcastOptions, {"tensors": _LIST}, _broadcast),
    "reduce": Forms("reduce", c10d.ReduceOptions, {"tensors": _LIST}, _reduce),
    "allgather": Forms(
        "all_gather",
        c10d.AllgatherOptions,
        {"output_tensors": _LISTS, "input_tensors": _LIST},
        _all_gather,
    ),
    "allgather_coalesced": Forms(
        "all_gather", c10d.AllgatherOptions, {"output_lists": _LISTS, "input_list": _LIST}
    ),
    "all_gather_single": Forms(
        "all_gather", c10d.AllgatherOptions, {"output": "Tensor", "input": "Tensor"}
    ),
    "all_gather_single_coalesced": Forms(
        "all_gather", c10d.AllgatherOptions, {"outputs": _LIST, "inputs": _LIST}
    ),
    "gather": Forms(
        "gather",
        c10d.GatherOptions,
        {"output_tensors": _LISTS, "input_tensors": _LIST},
        _gather,
    ),
    "scatter": Forms(
        "scatter",
        c10d.ScatterOptions,
        {"output_tensors": _LIST, "input_tensors": _LISTS},
        _scatter,
    ),
    "reduce_scatter": Forms(
        "reduce_scatter",
        c10d.ReduceScatterOptions,
        {"output_tensors": _LIST, "input_tensors": _LISTS},
        _reduce_scatter,
    ),
    "reduce_scatter_single": Forms(
        "reduce_scatter",
        c10d.ReduceScatterOptions,
        {"outputTensor": "Tensor", "inputTensor": "Tensor"},
    ),
    "reduce_scatter_single_coalesced": Forms(
        "reduce_scatter", c10d.ReduceScatterOptions, {"outputs": _LIST, "inputs": _LIST}
    ),
    "alltoall": Forms(
        "all_to_all", c10d.AllToAllOptions, {"output_tensors": _LIST, "input_tensors": _LIST}
    ),
    "all_to_all_single": Forms(
        "all_to_all",
        c10d.AllToAllOptions,
        {
            "output": "Tensor",
            "input": "Tensor",
            "output_split_sizes": "list[int]",
            "input_split_sizes": "list[int]",
        },
        _all_to_all_single,
    ),
    "barrier": Forms("barrier", c10d.BarrierOptions, {}, _barrier),
}


def overloaded(method: Method) -> Method:
    """Let a method that takes the form with options be called in all its forms."""
    name = method.__name__
    forms = FORMS[name]
    count, options, title = forms.count, forms.options, forms.title

    @functools.wraps(method)
    def call(self: Any, *args: Any, **named: Any) -> Any:
        if named and len(args) == count - 1 and named.keys() == _OPTS:
            args, named = (*args, named["opts"]), {}
        if named or len(args) != count or type(args[-1]) is not options:
            args = forms.bind(name, args, named)
        if not profiler_runs():
            return method(self, *args)
        with event(title, args[forms.inputs]):
            return method(self, *args)

    # For a wrapper around the method, which has to know what a call means.
    call.bind = functools.partial(forms.bind, name)  # type: ignore[attr-defined]
    return call
