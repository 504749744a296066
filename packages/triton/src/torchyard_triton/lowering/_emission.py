"""From nodes of a graph to the text of a Triton function.

An element that a captured tensor does not have is NaN, and 0 of a tensor of integers or truth
values: memory outside of the tensor is never read. What the program is given may be blocks that
broadcast against one another, such as rows [M, 1] and columns [1, N]; each step is computed on no
larger a block than its arguments need.
"""

from __future__ import annotations

from typing import Final

from torchyard_programs import INFIX, Graph, Node

__all__ = ["FLOAT64_FUNCTIONS", "HEADER", "Layout", "function_text"]

HEADER: Final = (
    "import triton\nimport triton.language as tl\n\n"
    "from torchyard_triton.device import elementary, rounding, special\n"
)

_TYPES: Final = {
    **{f"{kind}{bits}": f"tl.{kind}{bits}" for kind in ("int",) for bits in (8, 16, 32, 64)},
    **{f"float{bits}": f"tl.float{bits}" for bits in (16, 32, 64)},
    "bfloat16": "tl.bfloat16",
    "uint8": "tl.uint8",
    "bool": "tl.int1",
}
_FLOATS: Final = frozenset({"bfloat16", "float16", "float32", "float64"})
_COMPARISONS: Final = frozenset({"eq", "le", "lt", "ne"})
# Inputs that are no blocks in any kernel.
_SCALARS: Final = frozenset({"b", "h"})
# Functions of triton.language.
_NATIVE: Final = frozenset(
    {"ceil", "cos", "erf", "exp", "exp2", "floor", "log", "log2", "rsqrt", "sin", "sqrt"}
)
# The language's own, and those of the device library that have no polynomial of float32.
FLOAT64_FUNCTIONS: Final = _NATIVE | {
    *("floor_divide", "fmod", "power", "remainder", "round_even", "sigmoid", "sign", "signbit"),
    "trunc",
}
_SPECIAL: Final = frozenset({"digamma", "i0", "i1", "lgamma", "trigamma"})
_ROUNDING: Final = frozenset(
    {
        *("floor_divide", "fmod", "integer_floor_divide", "integer_fmod", "integer_power"),
        *("integer_remainder", "integer_trunc_divide", "remainder", "round_even", "sign", "trunc"),
    }
)
# tensor number -> (place of its pointer in the tuple of captured values, number of dimensions).
Layout = dict[int, tuple[int, int]]


def function_text(
    name: str, graph: Graph, inputs: tuple[str, ...], results: tuple[int, ...], layout: Layout
) -> str:
    """Return a jit function of (inputs..., captured) that returns some nodes.

    Args:
        name: the function's.
        graph: the nodes.
        inputs: names of its parameters.
        results: numbers of what it returns; one is returned bare, others as a tuple.
        layout: where captured tensors are in ``captured``: a pointer, sizes, strides.
    """
    lines = [f"@triton.jit\ndef {name}({', '.join((*inputs, 'captured'))}):"]
    for number in graph.needed(results):
        node = graph.nodes[number]
        if node.op == "load":
            lines += _load(number, node, layout)
        elif node.op in _COMPARISONS and _is_scalar(graph, number):
            # The interpreter gives a comparison of scalars their dtype when it broadcasts it.
            lines.append(f"v{number} = ({_expression(node)}).to(tl.int32) != 0")
        else:
            lines.append(f"v{number} = {_expression(node)}")
    lines.append("return " + ", ".join(f"v{number}" for number in results))
    return "\n    ".join(lines) + "\n"


def _is_scalar(graph: Graph, number: int) -> bool:
    nodes = (graph.nodes[needed] for needed in graph.needed((number,)))
    return all(node.op != "input" or node.data in _SCALARS for node in nodes)


def _load(number: int, node: Node, layout: Layout) -> list[str]:
    place, ndim = layout[int(str(node.data))]
    pointer = f"captured[{place}]"
    # Loads of truth values give int8 with some back ends.
    truth = " != 0" if node.dtype == "bool" else ""
    if not ndim:
        return [f"v{number} = tl.load({pointer}){truth}"]
    lines, inside, offset = [], [], []
    for dimension, arg in enumerate(node.args):
        size, stride = place + 1 + dimension, place + 1 + ndim + dimension
        index = f"i{number}_{dimension}"
        lines.append(f"{index} = tl.where(v{arg} < 0, v{arg} + captured[{size}], v{arg})")
        inside.append(f"({index} >= 0) & ({index} < captured[{size}])")
        offset.append(f"{index}.to(tl.int64) * captured[{stride}]")
    absent = 'float("nan")' if node.dtype in _FLOATS else "0"
    lines.append(
        f"v{number} = tl.load({pointer} + ({' + '.join(offset)}), "
        f"mask={' & '.join(inside)}, other={absent}){truth}"
    )
    return lines


def _expression(node: Node) -> str:
    args = [f"v{arg}" for arg in node.args]
    if node.op == "input":
        return str(node.data)
    if node.op == "constant":
        return f"tl.full((), {_number(node)}, {_TYPES[node.dtype]})"
    if node.op in INFIX:
        return f"{args[0]} {INFIX[node.op]} {args[1]}"
    if node.op in ("maximum", "clamp_min", "minimum", "clamp_max"):
        function = "tl.maximum" if node.op in ("maximum", "clamp_min") else "tl.minimum"
        keyword = ", propagate_nan=tl.PropagateNan.ALL" if node.dtype in _FLOATS else ""
        return f"{function}({args[0]}, {args[1]}{keyword})"
    if node.op == "cast":
        return f"{args[0]}.to({_TYPES[node.dtype]})"
    if node.op == "where":
        return f"tl.where({', '.join(args)})"
    if node.op == "neg":
        return f"-{args[0]}"
    if node.op == "abs":
        return f"tl.abs({args[0]})"
    if node.op == "not":
        return f"{args[0]} == 0"
    if node.op == "detach":
        return args[0]
    assert node.op == "call", node
    return f"{_function(str(node.data))}({', '.join(args)})"


def _function(name: str) -> str:
    if name in _NATIVE:
        return f"tl.{name}"
    if name in _SPECIAL:
        return f"special.{name}"
    return f"rounding.{name}" if name in _ROUNDING else f"elementary.{name}"


def _number(node: Node) -> str:
    text = str(node.data)
    return f'float("{text}")' if text in ("inf", "-inf", "nan") else text
