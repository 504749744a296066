"""A program's graph computes what the program does, and its derivatives are autograd's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import pytest
import torch
from torch import Tensor

from packages.programs.tests.words import WORDS, Word, values
from torchyard_programs import (
    Graph,
    Input,
    Node,
    UnsupportedProgramError,
    build,
    parse,
    program_graph,
    trace,
)

INPUTS: Final = (
    Input("x", torch.float32),
    Input("y", torch.float32),
    Input("i", torch.int64),
    Input("j", torch.int64),
)
TABLE: Final = torch.linspace(-1, 1, 30).reshape(6, 5)
FUNCTIONS: Final[dict[str, Callable[..., Any]]] = {
    "arithmetic": lambda x, y, i, j: (x * 2 - y / 3 + i) * (x + 0.5),
    "choice": lambda x, y, i, j: torch.where(i > j, x * y, torch.clamp(y, -0.5, 0.5)),
    "table": lambda x, y, i, j: x * TABLE[i % 6, j % 5],
    "table-from-behind": lambda x, y, i, j: x + TABLE[-1 - i % 6, -1],
    "functions": lambda x, y, i, j: torch.tanh(x) * torch.exp(-y * y) + torch.sigmoid(x),
    "powers": lambda x, y, i, j: x**3 - 1 / (1 + y**2),
    "whole-division": lambda x, y, i, j: x * ((i - j) // -3 + i % 5),
    "extremes": lambda x, y, i, j: torch.maximum(x, y) - torch.minimum(x, y * 2),
    "silu": lambda x, y, i, j: torch.nn.functional.silu(x) + torch.nn.functional.softplus(y),
    "half": lambda x, y, i, j: x.half() * 3 + y,
}
_OPERATORS: Final[dict[str, Callable[..., Tensor]]] = {
    "abs": torch.abs,
    "add": torch.add,
    "and": torch.bitwise_and,
    "clamp_max": torch.minimum,
    "clamp_min": torch.maximum,
    "detach": torch.clone,
    "div": torch.div,
    "eq": torch.eq,
    "le": torch.le,
    "lt": torch.lt,
    "maximum": torch.maximum,
    "minimum": torch.minimum,
    "mul": torch.mul,
    "ne": torch.ne,
    "neg": torch.neg,
    "not": torch.logical_not,
    "or": torch.bitwise_or,
    "shl": torch.bitwise_left_shift,
    "shr": torch.bitwise_right_shift,
    "sub": torch.sub,
    "where": torch.where,
    "xor": torch.bitwise_xor,
}
_CALLS: Final[dict[str, Callable[..., Tensor]]] = {
    "i1": torch.special.i1,
    "integer_floor_divide": torch.floor_divide,
    "integer_fmod": torch.fmod,
    "integer_power": torch.pow,
    "integer_remainder": torch.remainder,
    "integer_trunc_divide": lambda x, y: torch.div(x, y, rounding_mode="trunc"),
    "power": torch.pow,
    "round_even": torch.round,
    "trigamma": lambda x: torch.polygamma(1, x),
}


def _evaluated(graph: Graph, number: int, inputs: dict[str, Tensor]) -> Tensor:
    """Return a node's value, each node by one function of torch in its own dtype."""
    values: dict[int, Tensor] = {}
    for at in graph.needed((number,)):
        node = graph.nodes[at]
        values[at] = _value(node, [values[arg] for arg in node.args], inputs)
        assert str(values[at].dtype) == f"torch.{node.dtype}", node
    return values[number]


def _value(node: Node, args: list[Tensor], inputs: dict[str, Tensor]) -> Tensor:
    dtype = getattr(torch, node.dtype)
    if node.op == "input":
        return inputs[str(node.data)]
    if node.op == "constant":
        text = str(node.data)
        return torch.tensor(text == "True" if node.dtype == "bool" else float(text)).to(dtype)
    if node.op == "load":
        return TABLE[tuple(args)]
    if node.op == "cast":
        return args[0].to(dtype)
    if node.op == "call":
        name = str(node.data)
        return _CALLS.get(name, getattr(torch, name, None))(*args)  # type: ignore[misc]
    return _OPERATORS[node.op](*args)


def _values() -> tuple[Tensor, Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    x, y = (torch.randn(64, generator=generator) for _ in range(2))
    i, j = (torch.randint(-9, 10, (64,), generator=generator) for _ in range(2))
    return x, y, i, j


def _traced(function: Callable[..., Any]) -> tuple[str, Any]:
    inputs = tuple((item.name, item.dtype) for item in INPUTS)
    text, captured = trace(function, "fn", inputs, torch.device("cpu"))
    return text, tuple((tensor.dtype, tensor.ndim) for tensor in captured)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_graph_computes_the_program(name: str) -> None:
    values = _values()
    found = program_graph(*_with_inputs(name), result="float32")
    got = _evaluated(found.graph, found.graph.result, dict(zip("xyij", values, strict=True)))
    torch.testing.assert_close(got, FUNCTIONS[name](*values).float())
    assert found.tensors == ((0,) if name.startswith("table") else ())


@pytest.mark.parametrize("name", [name for name in FUNCTIONS if name != "half"])
def test_slopes_are_those_of_autograd(name: str) -> None:
    x, y, i, j = _values()
    found = program_graph(*_with_inputs(name), result="float32", derivatives=("x", "y"))
    x.requires_grad_()
    y.requires_grad_()
    wanted = torch.autograd.grad(FUNCTIONS[name](x, y, i, j).sum(), (x, y), allow_unused=True)
    given = {"x": x.detach(), "y": y.detach(), "i": i, "j": j}
    for slope, gradient in zip(found.slopes, wanted, strict=True):
        if gradient is None:
            assert slope is None
        else:
            assert slope is not None
            got = _evaluated(found.graph, slope, given).expand(64)
            torch.testing.assert_close(got, gradient, rtol=1e-5, atol=1e-5)


def test_what_fits_is_computed_in_int32() -> None:
    text, traits = _traced(lambda x, y, i, j: (i - j) * 3 > 7)
    ranges = (("i", -100, 100), ("j", -100, 100))
    wide = program_graph(text, INPUTS, traits, result="bool")
    narrow = program_graph(text, INPUTS, traits, result="bool", ranges=ranges)
    assert "int64" in {node.dtype for node in wide.graph.nodes}
    needed = narrow.graph.needed((narrow.graph.result,))
    assert "int64" not in {narrow.graph.nodes[number].dtype for number in needed}


def test_sites_are_where_wanted_tensors_are_read() -> None:
    text, traits = _traced(FUNCTIONS["table"])
    found = program_graph(text, INPUTS, traits, result="float32", wanted=(0,))
    (site,) = found.sites
    values = dict(zip("xyij", _values(), strict=True))
    assert torch.equal(_evaluated(found.graph, site.weight, values), values["x"])
    assert torch.equal(_evaluated(found.graph, site.indices[0], values), values["i"] % 6)


def _wide(arguments: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    return tuple(value.double() if value.is_floating_point() else value for value in arguments)


def _check(got: Tensor, wanted: Tensor, tolerance: float) -> None:
    """Raise where a value is further from another than some roundings of float32."""
    got, wanted = got.double().expand(wanted.shape), wanted.double()
    finite = wanted.isfinite()
    torch.testing.assert_close(got[~finite], wanted[~finite], equal_nan=True)
    scale = wanted[finite].abs().clamp_min(1.0)
    worst = ((got[finite] - wanted[finite]).abs() / scale).max().item() if finite.any() else 0.0
    eps = torch.finfo(torch.float32).eps
    assert worst <= tolerance * eps, f"{worst / eps:.1f} roundings"


@pytest.mark.parametrize("word", WORDS, ids=lambda word: word.word)
def test_each_words_graph_computes_it(word: Word) -> None:
    arguments = values(word)
    text, traits = _traced(word.function)
    function = build(parse(text), ("x", "y", "i", "j"))
    narrow = function(*arguments)
    rounds = narrow.dtype in (torch.float16, torch.bfloat16) or word.word == "to"
    graph = program_graph(text, INPUTS, traits).graph
    got = _evaluated(graph, graph.result, dict(zip("xyij", arguments, strict=True)))
    assert got.dtype == narrow.dtype
    wanted = narrow if rounds else function(*_wide(arguments))
    _check(got, wanted, word.tolerance if narrow.is_floating_point() else 0.0)


@pytest.mark.parametrize("word", [word for word in WORDS if word.slope], ids=lambda word: word.word)
def test_each_words_slopes_are_those_of_autograd(word: Word) -> None:
    arguments = values(word, special=False)
    text, traits = _traced(word.function)
    found = program_graph(text, INPUTS, traits, result="float32", derivatives=("x", "y"))
    x, y, i, j = _wide(arguments)
    leaves = [x.requires_grad_(), y.requires_grad_()]
    result = build(parse(text), ("x", "y", "i", "j"))(*leaves, i, j)
    wanted = [torch.zeros_like(x), torch.zeros_like(y)]
    if result.requires_grad:
        wanted = list(
            torch.autograd.grad(result.sum(), leaves, allow_unused=True, materialize_grads=True)
        )
    given = dict(zip("xyij", arguments, strict=True))
    for slope, exact in zip(found.slopes, wanted, strict=True):
        got = torch.zeros(()) if slope is None else _evaluated(found.graph, slope, given)
        _check(got, exact, word.tolerance * 4)


@pytest.mark.parametrize(
    ("function", "refused"),
    [
        (lambda x, y, i, j: torch.tanh(x.double()), "tanh"),
        (lambda x, y, i, j: torch.exp(x.double()), "exp"),
        (lambda x, y, i, j: torch.nn.functional.softplus(x.double()), "softplus"),
        (lambda x, y, i, j: torch.nn.functional.silu(x.double()), "silu"),
        (lambda x, y, i, j: torch.atan2(x, y.double()), "atan2"),
        (lambda x, y, i, j: torch.signbit(x.double()), "signbit"),
    ],
)
def test_a_function_that_the_language_lacks_in_float64_is_refused(
    function: Callable[..., Any], refused: str
) -> None:
    text, traits = _traced(function)
    with pytest.raises(UnsupportedProgramError, match=f"^{refused} of float64$"):
        program_graph(text, INPUTS, traits)
    has = frozenset({"atan2", "exp", "log1p", "sigmoid", "signbit", "tanh"})
    values = dict(zip("xyij", _values(), strict=True))
    graph = program_graph(text, INPUTS, traits, float64_functions=has).graph
    wanted = function(*values.values())
    torch.testing.assert_close(_evaluated(graph, graph.result, values), wanted)


def test_what_a_derivative_calls_is_refused_too() -> None:
    text, traits = _traced(lambda x, y, i, j: torch.sin(x.double()))
    only = frozenset({"sin"})
    program_graph(text, INPUTS, traits, float64_functions=only)
    with pytest.raises(UnsupportedProgramError, match="cos of float64, which a derivative calls"):
        program_graph(text, INPUTS, traits, derivatives=("x",), float64_functions=only)


def test_what_has_no_graph_is_named() -> None:
    text, traits = _traced(lambda x, y, i, j: x + TABLE[i % 6].sum())
    with pytest.raises(UnsupportedProgramError, match="getitem that takes more than one element"):
        program_graph(text, INPUTS, traits, result="float32")


def _with_inputs(name: str) -> tuple[str, tuple[Input, ...], Any]:
    text, traits = _traced(FUNCTIONS[name])
    return text, INPUTS, traits
