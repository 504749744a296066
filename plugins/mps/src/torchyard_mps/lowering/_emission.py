"""From nodes of a graph to the text of a Metal function.

An element that a captured tensor does not have is NaN, and 0 of a tensor of integers or truth
values: memory outside of the tensor is never read.
"""

from __future__ import annotations

from typing import Final

from torchyard_programs import INFIX, Graph, Node, UnsupportedProgramError

__all__ = ["FLOATS", "TYPES", "Layout", "function_text", "place_text", "type_of"]

TYPES: Final = {
    "bfloat16": "bfloat",
    "bool": "bool",
    "float16": "half",
    "float32": "float",
    "int16": "short",
    "int32": "int",
    "int64": "long",
    "int8": "char",
    "uint8": "uchar",
}
FLOATS: Final = frozenset({"bfloat16", "float16", "float32"})
_EXTREMES: Final = {
    "clamp_max": "minimum",
    "clamp_min": "maximum",
    "maximum": "maximum",
    "minimum": "minimum",
}
# What integers are computed as, since torch's wrap around and a signed overflow is undefined.
_UNSIGNED: Final = {"int32": "uint", "int64": "ulong"}
_SPECIAL: Final = {"inf": "INFINITY", "-inf": "-INFINITY", "nan": "NAN"}
# tensor number -> (place of its sizes and strides in ``layout``, number of dimensions).
Layout = dict[int, tuple[int, int]]


def type_of(dtype: str) -> str:
    """Return the type of Metal that holds a dtype.

    Raises:
        UnsupportedProgramError: none does.
    """
    if dtype not in TYPES:
        raise UnsupportedProgramError(f"computes {dtype}, which Metal does not have")
    return TYPES[dtype]


def function_text(
    name: str, graph: Graph, parameters: str, result: int, dtype: str, layout: Layout
) -> str:
    """Return a function of a program's inputs and captured tensors that returns a node.

    Args:
        name: the function's.
        graph: the nodes.
        parameters: of the function, as text.
        result: the number of the node.
        dtype: of what the function returns.
        layout: where sizes and strides of captured tensors are in ``layout``.
    """
    lines = [f"inline {type_of(dtype)} {name}({parameters}) {{"]
    lines += _statements(graph, (result,), layout)
    lines.append(f"return {type_of(dtype)}(v{result});")
    return "\n  ".join(lines) + "\n}\n"


def place_text(
    name: str, graph: Graph, parameters: str, tensor: int, indices: tuple[int, ...], layout: Layout
) -> str:
    """Return a function that returns an element's place in its tensor's logical order, or -1.

    Args:
        name: the function's.
        graph: the nodes.
        parameters: of the function, as text.
        tensor: the captured tensor's number.
        indices: numbers of the nodes that index it.
        layout: where sizes and strides of captured tensors are in ``layout``.
    """
    place, _ = layout[tensor]
    lines = [f"inline long {name}({parameters}) {{", *_statements(graph, indices, layout)]
    lines.append("long place = 0;")
    for dimension, number in enumerate(indices):
        size, index = f"layout[{place + dimension}]", f"i{dimension}"
        lines.append(f"const long {index} = v{number} < 0 ? long(v{number}) + {size} : v{number};")
        lines.append(f"if ({index} < 0 || {index} >= {size}) return -1;")
        lines.append(f"place = place * {size} + {index};")
    lines.append("return place;")
    return "\n  ".join(lines) + "\n}\n"


def _statements(graph: Graph, results: tuple[int, ...], layout: Layout) -> list[str]:
    lines = []
    for number in graph.needed(results):
        node = graph.nodes[number]
        if node.op == "load":
            lines += _load(number, node, layout)
        else:
            lines.append(f"const {type_of(node.dtype)} v{number} = {_expression(graph, node)};")
    return lines


def _load(number: int, node: Node, layout: Layout) -> list[str]:
    tensor = int(str(node.data))
    place, ndim = layout[tensor]
    kind = type_of(node.dtype)
    if not ndim:
        return [f"const {kind} v{number} = c{tensor}[0];"]
    lines, inside, offset = [], [], []
    for dimension, arg in enumerate(node.args):
        size, stride = f"layout[{place + dimension}]", f"layout[{place + ndim + dimension}]"
        index = f"i{number}_{dimension}"
        lines.append(f"const long {index} = v{arg} < 0 ? long(v{arg}) + {size} : long(v{arg});")
        inside.append(f"{index} >= 0 && {index} < {size}")
        offset.append(f"{index} * {stride}")
    absent = f"{kind}(NAN)" if node.dtype in FLOATS else f"{kind}(0)"
    lines.append(
        f"const {kind} v{number} = {' && '.join(inside)} ? "
        f"c{tensor}[{' + '.join(offset)}] : {absent};"
    )
    return lines


def _expression(graph: Graph, node: Node) -> str:
    args = [f"v{arg}" for arg in node.args]
    kind = type_of(node.dtype)
    if node.op == "input":
        return str(node.data)
    if node.op == "constant":
        return _number(node)
    unsigned = _UNSIGNED.get(node.dtype, "uint")
    if node.op in ("shl", "shr"):
        # Bits that are shifted out are lost, of negative numbers too.
        shifted = f"{unsigned}({args[0]})" if node.op == "shl" else args[0]
        return f"{kind}({shifted} {INFIX[node.op]} {args[1]})"
    if node.op in ("add", "sub", "mul") and node.dtype in _UNSIGNED:
        left, right = (f"{unsigned}({arg})" for arg in args)
        return f"{kind}({left} {INFIX[node.op]} {right})"
    if node.op in INFIX:
        return f"{kind}({args[0]} {INFIX[node.op]} {args[1]})"
    if node.op in _EXTREMES:
        word = _EXTREMES[node.op]
        if node.dtype in FLOATS:
            return f"torchyard::{word}({args[0]}, {args[1]})"
        return f"{word[:3]}({args[0]}, {args[1]})"
    if node.op == "cast":
        return f"{kind}({args[0]})"
    if node.op == "where":
        return f"{args[0]} ? {args[1]} : {args[2]}"
    if node.op == "neg" and node.dtype in _UNSIGNED:
        return _negative(node.dtype, args[0])
    if node.op == "neg":
        return f"{kind}(-{args[0]})"
    if node.op == "abs" and node.dtype in _UNSIGNED:
        return f"{args[0]} < 0 ? {_negative(node.dtype, args[0])} : {args[0]}"
    if node.op == "abs":
        return f"{'fabs' if node.dtype in FLOATS else 'abs'}({args[0]})"
    if node.op == "not":
        return f"!{args[0]}"
    if node.op == "detach":
        return args[0]
    assert node.op == "call", node
    return f"torchyard::{node.data}({', '.join(args)})"


def _negative(dtype: str, value: str) -> str:
    return f"{type_of(dtype)}({_UNSIGNED[dtype]}(0) - {_UNSIGNED[dtype]}({value}))"


def _number(node: Node) -> str:
    text = str(node.data)
    if node.dtype == "bool":
        return text.lower()
    if node.dtype in FLOATS:
        return _SPECIAL.get(text, f"{text}f")
    # The least int64 is no literal.
    return f"({int(text) + 1}l - 1l)" if node.dtype == "int64" else text
