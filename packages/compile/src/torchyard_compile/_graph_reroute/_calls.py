"""torch's functions and methods in a graph as a model wrote it, by name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

from torch import fx

__all__ = ["CASTS", "Call", "call_of", "current", "writes_memory"]

# What gives the same elements another dtype or other strides, or returns its argument.
CASTS: Final = frozenset(
    {"bfloat16", "contiguous", "double", "float", "half", "to", "type", "type_as"}
)

# Of Python's operators those whose names in torch are others.
_OPERATORS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "truediv": "div",
        "true_divide": "div",
        "divide": "div",
        "multiply": "mul",
        "subtract": "sub",
        "negative": "neg",
        "iadd": "add_",
        "isub": "sub_",
        "imul": "mul_",
        "itruediv": "div_",
        "__matmul__": "matmul",
    }
)


@dataclass(frozen=True, slots=True)
class Call:
    """A function or method of torch's, or an operator of Python's, that a node calls.

    Attributes:
        name: such as ``matmul``; of one that writes into its first argument without the underscore.
        args, kwargs: its arguments, nodes among them.
        writes: whether it writes into its first argument.
    """

    name: str
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    writes: bool = False

    def argument(self, position: int, name: str, default: Any = None) -> Any:
        """Return an argument that is given by position or by name."""
        if position < len(self.args):
            return self.args[position]
        return self.kwargs.get(name, default)


def call_of(node: object) -> Call | None:
    """Return what a node calls; None for anything but a function or method of torch's."""
    if not isinstance(node, fx.Node):
        return None
    if node.op == "call_method":
        name = str(node.target)
    elif node.op == "call_function" and _is_known(node.target):
        name = node.target.__name__  # type: ignore[union-attr]
    else:
        return None
    name = _OPERATORS.get(name, name)
    writes = name.endswith("_") and not name.startswith("__")
    return Call(name.rstrip("_") if writes else name, node.args, node.kwargs, writes)


def _is_known(target: Any) -> bool:
    module = getattr(target, "__module__", None) or ""
    # torch.add and others name no module, or a class of functions.
    return hasattr(target, "__name__") and (
        module in ("", "_operator", "operator") or module.partition(".")[0] == "torch"
    )


def current(node: fx.Node, reader: fx.Node, order: Mapping[fx.Node, int]) -> fx.Node:
    """Return the node of what a tensor is when another node reads it: the last that wrote into it.

    Args:
        node: of the tensor.
        reader: what reads it, or its result after that.
        order: the position of each node in the graph.
    """
    while True:
        writers = [
            user
            for user in node.users
            if order[user] < order[reader]
            and (call := call_of(user)) is not None
            and call.writes
            and call.args[0] is node
        ]
        if not writers:
            return node
        node = max(writers, key=order.__getitem__)


def writes_memory(node: fx.Node) -> bool:
    """Return whether a node writes, or may write, into a tensor that it is given."""
    call = call_of(node)
    if call is not None:
        inplace = bool(call.kwargs.get("inplace")) or "out" in call.kwargs
        return call.writes or inplace or call.name in ("setitem", "__setitem__")
    schema = getattr(node.target, "_schema", None)
    return node.op == "call_function" and (schema is None or bool(schema.is_mutable))
