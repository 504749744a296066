"""From nodes of a graph to the text of a function in CuTe DSL.

FlashAttention-4 calls the function with vectors of one length: the score, and the indices of batch,
head, query and key.

An element that a captured tensor does not have is NaN, and 0 of integers: memory outside of the
tensor is never read.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import MappingProxyType
from typing import Final

from torchyard_programs import INFIX, Graph, Node, UnsupportedProgramError

__all__ = ["HEADER", "function_text"]

_TYPES: Final = MappingProxyType(
    {
        "bfloat16": "cutlass.BFloat16",
        "bool": "cutlass.Boolean",
        "float16": "cutlass.Float16",
        "float32": "cutlass.Float32",
        "int8": "cutlass.Int8",
        "int16": "cutlass.Int16",
        "int32": "cutlass.Int32",
        "int64": "cutlass.Int64",
        "uint8": "cutlass.Uint8",
    }
)
_FLOATS: Final = frozenset({"bfloat16", "float16", "float32"})
# Operators that were not tried in CuTe DSL.
_UNTRIED: Final = frozenset({"shl", "shr"})
# Functions of cute.math, by the names of the graph's calls.
_MATH: Final = MappingProxyType(
    {
        **{name: name for name in ("cos", "erf", "exp", "exp2", "log", "log2", "rsqrt", "sin")},
        **{name: name for name in ("ceil", "floor", "sqrt", "tanh", "log1p", "expm1")},
        "round_even": "roundeven",
    }
)
# What flash_attn.cute passes by keyword, by the names of a program's inputs.
_INPUTS: Final = MappingProxyType({"q": "q_idx", "k": "kv_idx"})
# Dimensions of a captured tensor that an element is read of.
_MOST_DIMENSIONS: Final = 4


def _element(ndim: int) -> str:
    """Return the text of the function that reads elements of tensors with some dimensions."""
    indices = [f"i{d}" for d in range(ndim)]
    fixed = "like, tensor: cute.Tensor, dtype: cutlass.Constexpr, absent: cutlass.Constexpr"
    lines = ["@cute.jit", f"def element{ndim}({fixed}, {', '.join(indices)}):"]
    for index in indices:
        lines += [
            f"    at_{index} = cute.make_rmem_tensor(like.shape, cutlass.Int32)",
            f"    at_{index}.store({index}.to(cutlass.Int32))",
        ]
    lines += [
        "    got = cute.make_rmem_tensor(like.shape, dtype)",
        "    for n in cutlass.range_constexpr(cute.size(like.shape)):",
        "        inside = cutlass.Boolean(True)",
    ]
    for dimension, index in enumerate(indices):
        lines += [
            f"        j{dimension} = at_{index}[n]",
            f"        if j{dimension} < 0:",
            f"            j{dimension} = j{dimension} + tensor.shape[{dimension}]",
            f"        if j{dimension} < 0:",
            "            inside = cutlass.Boolean(False)",
            f"        if j{dimension} >= tensor.shape[{dimension}]:",
            "            inside = cutlass.Boolean(False)",
        ]
    place = ", ".join(f"j{d}" for d in range(ndim))
    lines += [
        "        value = dtype(absent)",
        "        if inside:",
        f"            value = dtype(tensor[{place}])",
        "        got[n] = value",
        "    return got.load()",
    ]
    return "\n".join(lines) + "\n"


_IMPORTS: Final = "import cutlass\nimport cutlass.cute as cute\n"
_FULL: Final = """@cute.jit
def full(like, value: cutlass.Constexpr, dtype: cutlass.Constexpr):
    return cute.full(like.shape, value, dtype)
"""
HEADER: Final = "\n\n".join((_IMPORTS, _FULL, *map(_element, range(1, _MOST_DIMENSIONS + 1))))


def function_text(
    name: str,
    parameters: Sequence[str],
    graph: Graph,
    result: int,
    places: dict[int, int],
    *,
    like: str,
    scaled_by: str = "",
) -> str:
    """Return a jit function that returns a node.

    Args:
        name, parameters: the function's. Inputs of the graph are parameters, q and k as ``q_idx``
            and ``kv_idx``.
        graph: the nodes.
        result: the node's number.
        places: number of a captured tensor -> its place in ``aux_tensors``.
        like: the parameter whose shape results have.
        scaled_by: a parameter that the result is multiplied by.

    Raises:
        UnsupportedProgramError: a node has no form in CuTe DSL that is known to be right.
    """
    lines = [f"@cute.jit\ndef {name}({', '.join(parameters)}):"]
    for number in graph.needed((result,)):
        node = graph.nodes[number]
        lines.append(f"v{number} = {_expression(node, places, like)}")
    lines.append(f"return {scaled_by} * v{result}" if scaled_by else f"return v{result}")
    return "\n    ".join(lines) + "\n"


def _expression(node: Node, places: dict[int, int], like: str) -> str:
    args = [f"v{arg}" for arg in node.args]
    dtype = _type(node.dtype)
    if node.op == "input":
        return _INPUTS.get(str(node.data), str(node.data))
    if node.op == "constant":
        return f"full({like}, {_number(node)}, {dtype})"
    if node.op == "load":
        return _load(node, places, like)
    if node.op in INFIX and node.op not in _UNTRIED:
        return f"{args[0]} {INFIX[node.op]} {args[1]}"
    if node.op in ("maximum", "clamp_min", "minimum", "clamp_max"):
        sign = ">=" if node.op in ("maximum", "clamp_min") else "<="
        # NaN is passed on: it is no less than anything.
        nan = f" | ({args[0]} != {args[0]})" if node.dtype in _FLOATS else ""
        return f"cute.where(({args[0]} {sign} {args[1]}){nan}, {args[0]}, {args[1]})"
    if node.op == "cast":
        return f"{args[0]}.to({dtype})"
    if node.op == "where":
        return f"cute.where({args[0]}, {args[1]}, {args[2]})"
    if node.op == "neg":
        return f"-{args[0]}"
    if node.op == "abs":
        zero = f"full({like}, 0, {dtype})"
        return f"cute.where({args[0]} <= {zero}, {zero} - {args[0]}, {args[0]})"
    if node.op == "not":
        return f"{args[0]} == full({like}, False, cutlass.Boolean)"
    if node.op == "detach":
        return args[0]
    if node.op == "call":
        return _call(str(node.data), args, node.dtype, like)
    raise UnsupportedProgramError(f"{node.op} has no form in CuTe DSL here")


def _call(name: str, args: list[str], dtype: str, like: str) -> str:
    if dtype == "float32" and name in _MATH:
        return f"cute.math.{_MATH[name]}({args[0]}, fastmath=False)"
    one = f"full({like}, 1, {_type(dtype)})"
    if dtype == "float32" and name == "sigmoid":
        return f"{one} / ({one} + cute.math.exp(-{args[0]}, fastmath=False))"
    if name == "sign":
        zero = f"full({like}, 0, {_type(dtype)})"
        below = f"cute.where({args[0]} < {zero}, {zero} - {one}, {args[0]} * {zero})"
        return f"cute.where({zero} < {args[0]}, {one}, {below})"
    if name == "integer_floor_divide":
        return f"{args[0]} // {args[1]}"
    if name == "integer_remainder":
        return f"{args[0]} - ({args[0]} // {args[1]}) * {args[1]}"
    raise UnsupportedProgramError(f"{name} of {dtype} has no form in CuTe DSL here")


def _load(node: Node, places: dict[int, int], like: str) -> str:
    tensor = f"aux_tensors[{places[int(str(node.data))]}]"
    indices = [f"v{arg}" for arg in node.args]
    if len(indices) > _MOST_DIMENSIONS:
        raise UnsupportedProgramError(
            f"reads a captured tensor of {len(indices)} dimensions; here up to {_MOST_DIMENSIONS}"
        )
    # A tensor without dimensions is passed as one of a single element, and truth values as uint8.
    indices = indices or [f"full({like}, 0, cutlass.Int32)"]
    dtype = "uint8" if node.dtype == "bool" else node.dtype
    absent = 'float("nan")' if node.dtype in _FLOATS else "0"
    got = f"element{len(indices)}({like}, {tensor}, {_type(dtype)}, {absent}, {', '.join(indices)})"
    return f"{got} != full({like}, 0, cutlass.Uint8)" if node.dtype == "bool" else got


def _type(dtype: str) -> str:
    if dtype not in _TYPES:
        raise UnsupportedProgramError(f"computes in {dtype}")
    return _TYPES[dtype]


def _number(node: Node) -> str:
    text = str(node.data)
    return f'float("{text}")' if text in ("inf", "-inf", "nan") else text
