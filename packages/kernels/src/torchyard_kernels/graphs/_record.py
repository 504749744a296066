"""The operators of one run, recorded and checked: a replay can repeat each of them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from contextlib import nullcontext
from pathlib import Path
from types import FrameType, MappingProxyType
from typing import Any, Final

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from torchyard import registry
from torchyard_kernels._torch_compat import TorchDispatchMode, storage_identity, tree_leaves
from torchyard_kernels.graphs._errors import UncapturableError
from torchyard_kernels.graphs.contract import Step

__all__ = ["operator_name", "record", "storage_of", "tensors_in", "written"]

_OURS: Final = "torchyard"
_TORCH: Final = str(Path(torch.__file__).parent)

# Methods that read a tensor's data without an operator, or by an operator of another name.
_HOST: Final = {
    getattr(Tensor, name): f"Tensor.{name}"
    for name in (
        *("item", "tolist", "numpy", "__bool__", "__int__", "__float__", "__index__"),
        *("__array__", "__complex__", "__contains__", "data_ptr", "__dlpack__", "storage"),
        *("untyped_storage", "resize_", "set_"),
    )
}
_REASONS: Final = {
    "data_ptr": "it hands an address out, through which a replay's values would not be seen",
    "untyped_storage": "it hands memory out, through which a replay's values would not be seen",
    "storage": "it hands memory out, through which a replay's values would not be seen",
    "resize_": "it changes a tensor's memory, which a graph holds fixed",
    "set_": "it changes a tensor's memory, which a graph holds fixed",
}
_TO_HOST: Final = (
    "it reads a tensor's value on the host, so later operators may depend on data; keep the "
    "value in a tensor, with torch.where for a choice"
)


def storage_of(tensor: Tensor) -> int:
    """Return a number that identifies a tensor's storage."""
    return storage_identity(tensor)


def tensors_in(tree: Any) -> list[Tensor]:
    """Return the tensors in an operator's arguments or results."""
    return [leaf for leaf in tree_leaves(tree) if isinstance(leaf, Tensor)]


def written(op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Tensor]:
    """Return the arguments that an operator changes in place."""
    found: list[Tensor] = []
    for at, argument in enumerate(op._schema.arguments):
        if argument.alias_info is None or not argument.alias_info.is_write:
            continue
        given = args[at] if at < len(args) else kwargs.get(argument.name)
        found += tensors_in(given)
    return found


def operator_name(op: Any) -> str:
    """Return an operator's name without its overload, such as ``aten::mm``."""
    return f"{op.namespace}::{op.overloadpacket.__name__}"


def record(
    run: Callable[[], tuple[Tensor, ...]],
    inputs: Iterable[Tensor],
    state: Iterable[Tensor],
    faults: Mapping[str, str] = MappingProxyType({}),
) -> tuple[tuple[Step, ...], tuple[Tensor, ...]]:
    """Run a function; return its operators below autograd, and its outputs.

    Args:
        run: the function.
        inputs, state: what it reads and changes.
        faults: by the names of operators that the device's graphs do not hold, why; refused also
            where an implementation of a torchyard op calls them.

    Raises:
        UncapturableError: names the first operator that a replay could not repeat, and the line of
            the caller's code.
    """
    operators = _Operators(inputs, state, faults)
    inside = (
        registry().observe(lambda decision: _Inside(faults, decision.name))
        if faults
        else nullcontext()
    )
    # What is compiled and called in such a mode runs uncompiled from then on, until torch 2.13.
    with torch.compiler.set_stance("force_eager"), inside, _Methods(), operators:
        outputs = run()
    return tuple(operators.steps), outputs


class _Methods(TorchFunctionMode):
    """Refuse methods that read or change a tensor outside of operators."""

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        name = _HOST.get(func)
        if name is not None:
            raise UncapturableError(name, _REASONS.get(name.partition(".")[2], _TO_HOST), _line())
        return func(*args, **(kwargs or {}))


class _Operators(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Record every operator with its arguments and results, which keeps their memory from reuse."""

    def __init__(
        self, inputs: Iterable[Tensor], state: Iterable[Tensor], faults: Mapping[str, str]
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.steps: list[Step] = []
        self._inputs = {storage_of(tensor) for tensor in inputs}
        self._state = {storage_of(tensor) for tensor in state}
        self._allocated: set[int] = set()
        self._faults = faults

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        reason = self._refusal(func, args, kwargs)
        if reason:
            raise UncapturableError(str(func), reason, _line())
        result = func(*args, **kwargs)
        known = {storage_of(tensor) for tensor in tensors_in((args, kwargs))}
        self._allocated |= {storage_of(tensor) for tensor in tensors_in(result)} - known
        self.steps.append(Step(func, args, kwargs, result))
        return result

    def _refusal(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
        tags = func.tags
        if self._faults and operator_name(func) in self._faults:
            return self._faults[operator_name(func)]
        if torch.Tag.dynamic_output_shape in tags and not _is_of_fixed_shape(func, args, kwargs):
            return (
                "the shape of its result depends on data; ask for a fixed number, as "
                "torch.nonzero_static does"
            )
        if torch.Tag.data_dependent_output in tags:
            return _TO_HOST
        if torch.Tag.inplace_view in tags:
            return "it changes a tensor's shape in place, which a graph holds fixed"
        for tensor in tensors_in((args, kwargs)):
            if type(tensor) not in (Tensor, torch.nn.Parameter):
                return f"it was given a {type(tensor).__name__}; graphs support plain tensors alone"
        for tensor in written(func, args, kwargs):
            storage = storage_of(tensor)
            if storage in self._allocated or storage in self._state:
                continue
            if storage in self._inputs:
                return (
                    "it changes an argument in place, and a replay works on a copy of it; "
                    "list the tensor in state= and read it from the enclosing scope, or clone it"
                )
            return (
                "it changes a tensor that is neither created in the function nor listed in state=; "
                "list it there if every replay is to change it"
            )
        return ""


class _Inside(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Refuse operators that an implementation calls: a mode around it sees the op alone."""

    def __init__(self, faults: Mapping[str, str], implementation: str) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._faults = faults
        self._implementation = implementation

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        reason = self._faults.get(operator_name(func))
        if reason:
            raise UncapturableError(
                str(func), f"{self._implementation} calls it, and {reason}", _line()
            )
        return func(*args, **(kwargs or {}))


def _is_of_fixed_shape(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Return whether a result's shape does not depend on data for these arguments."""
    if func is torch.ops.aten.index.Tensor:
        return all(i is None or i.dtype not in (torch.bool, torch.uint8) for i in args[1])
    return kwargs.get("output_size") is not None


def _line() -> str:
    """Return ``file:line`` of the caller's own code."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        name = frame.f_code.co_filename
        module = str(frame.f_globals.get("__name__", ""))
        if not (name.startswith((_TORCH, "<")) or module.startswith(_OURS)):
            return f"{name}:{frame.f_lineno}"
        frame = frame.f_back
    return "an unknown line"
