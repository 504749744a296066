"""Products of compiled graphs by the registry's choice, with what is before and after them."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn import functional

import torchyard
from torchyard_compile import CallSite, LinearFusion
from torchyard_compile._fusion import _backend
from torchyard_kernels._operators import OPERATORS
from torchyard_kernels.linear.contract import LINEAR
from torchyard_kernels.linear.graph_call import graph_call


def _drawn(*shape: int, dtype: torch.dtype = torch.float32, seed: int = 1) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


class _Conv1D(nn.Module):
    """A layer whose weight is [K, N], as GPT-2's are."""

    def __init__(self, depth: int, outputs: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(_drawn(depth, outputs) / depth**0.5)
        self.bias = nn.Parameter(_drawn(outputs))

    def forward(self, x: Tensor) -> Tensor:
        rows = torch.addmm(self.bias, x.reshape(-1, x.shape[-1]), self.weight)
        return rows.reshape(*x.shape[:-1], -1)


class _Block(nn.Module):
    """One of each: gated, residual, normalised, of both forms of weight."""

    def __init__(self, size: int = 32) -> None:
        super().__init__()
        self.norm, self.second = nn.RMSNorm(size), nn.LayerNorm(size)
        self.gate, self.up = (nn.Linear(size, 2 * size, bias=False) for _ in range(2))
        self.down = nn.Linear(2 * size, size)
        self.wide, self.narrow = _Conv1D(size, 4 * size), nn.Linear(4 * size, size)

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm(x)
        x = x + self.down(functional.silu(self.gate(y)) * self.up(y))
        y = self.second(x)
        return x + 0.5 * self.narrow(functional.gelu(self.wide(y), approximate="tanh"))


def _model(kind: Callable[[], nn.Module] = _Block) -> nn.Module:
    torch.manual_seed(0)
    return kind().eval()


def _product() -> nn.Module:
    return nn.Sequential(nn.Linear(32, 48), nn.ReLU())


def _error(found: Tensor, exact: Tensor) -> float:
    return float((found.double() - exact).norm() / exact.norm())


def _chosen(fusion: LinearFusion) -> list[CallSite]:
    return [site for site in fusion.explain() if site.implementation]


@pytest.fixture(autouse=True)
def _own_caches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Give each test caches of its own: a graph that another process compiled has no sites."""
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "inductor"))
    torch.compiler.reset()
    yield
    torch.compiler.reset()


@pytest.mark.sweep
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_a_block_is_as_exact_as_inductors_and_its_functions_are_fused(dtype: torch.dtype) -> None:
    model, x = _model(), _drawn(2, 24, 32)
    with torch.no_grad():
        exact = copy.deepcopy(model).double()(x.double())
        model.to(dtype)
        fusion = LinearFusion()
        found = torch.compile(model, backend=fusion)(x.to(dtype))
        theirs = torch.compile(model)(x.to(dtype))
    assert found.dtype == dtype
    assert found.shape == x.shape
    # Both round a few hundred times; a wrong function is further away by far.
    assert _error(found, exact) <= 2 * _error(theirs, exact)
    sites = _chosen(fusion)
    assert {site.implementation for site in sites} == {"cpu.native"}
    assert sum(site.calls for site in sites) == 5
    fused = [site.function for site in sites if site.function != "linear"]
    # The second linear of the gate, both residuals, and what the norm ends in or the tanh.
    assert len(fused) >= 4, fused
    assert all(site.where.startswith("test_fusion.py:") for site in sites)
    assert fusion.cached_graphs == 0


@pytest.mark.sweep
def test_gradients_are_those_of_eager_and_backward_products_are_chosen_too() -> None:
    model, x = _model(), _drawn(6, 32)
    expected = torch.autograd.grad(model(x).square().sum(), list(model.parameters()))
    fusion = LinearFusion()
    compiled: Any = torch.compile(model, backend=fusion)
    found = torch.autograd.grad(compiled(x).square().sum(), list(model.parameters()))
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)
    # A layer has a product forward and, here with weights that need gradients, two backward.
    assert sum(site.calls for site in _chosen(fusion)) > 8


@pytest.mark.sweep
def test_sizes_that_change_are_of_one_graph() -> None:
    model, fusion = _model(), LinearFusion()
    compiled = torch.compile(model, backend=fusion, dynamic=True)
    with torch.no_grad():
        for rows in (5, 17, 40):
            x = _drawn(2, rows, 32, seed=rows)
            torch.testing.assert_close(compiled(x), model(x), rtol=1e-4, atol=1e-4)
    assert sum(site.calls for site in _chosen(fusion)) == 5


@pytest.mark.sweep
def test_a_demand_for_torchs_own_leaves_a_graph_alone() -> None:
    model, fusion = _model(), LinearFusion()
    with torch.no_grad(), torchyard.use(linear="kernels.torch"):
        torch.compile(model, backend=fusion)(_drawn(3, 32))
    assert not _chosen(fusion)
    assert all("kernels.torch" in site.reason for site in fusion.explain())
    assert fusion.explain()


@pytest.mark.sweep
def test_torchs_caches_have_a_graph_for_each_choice() -> None:
    model, x = _model(_product), _drawn(3, 32)
    _compiled(model, x)
    again = _compiled(model, x)
    assert again.cached_graphs == 1
    assert again.explain() == ()
    with torchyard.use(linear="kernels.torch"):
        other = _compiled(model, x)
    assert other.cached_graphs == 0
    assert other.explain()
    assert not _chosen(other)


def test_a_graph_that_other_sources_compiled_is_not_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would call an op by a name that these sources do not define."""
    model, x = _model(_product), _drawn(3, 32)
    _compiled(model, x)
    monkeypatch.setattr(_backend, "_sources", lambda: "of another version")
    assert _compiled(model, x).cached_graphs == 0


def test_the_key_of_graphs_covers_the_sources_of_their_ops() -> None:
    assert {"torchyard_compile", *OPERATORS.sources} <= set(_backend._PARTS)


def _compiled(model: nn.Module, x: Tensor) -> LinearFusion:
    torch.compiler.reset()
    fusion = LinearFusion()
    with torch.no_grad():
        torch.testing.assert_close(torch.compile(model, backend=fusion)(x), model(x))
    return fusion


def test_a_pass_among_the_options_runs_before() -> None:
    seen: list[int] = []
    fusion = LinearFusion()
    options = {"post_grad_custom_pre_pass": lambda graph: seen.append(len(fusion.explain()))}
    with torch.no_grad():
        torch.compile(_model(), backend=fusion, options=options)(_drawn(3, 32))
    assert seen == [0]
    assert len(_chosen(fusion)) >= 4


def test_modes_and_options_are_inductors() -> None:
    model, x = _model(), _drawn(3, 32)
    with torch.no_grad():
        for words in ({"mode": "reduce-overhead"}, {"options": {"max_fusion_size": 8}}):
            torch.compiler.reset()
            found = torch.compile(model, backend=LinearFusion(), **words)(x)  # type: ignore[call-overload]
            torch.testing.assert_close(found, model(x), rtol=1e-4, atol=1e-4)


def test_without_the_kernels_the_package_to_install_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(_backend, "find_spec", lambda name: None)
    with pytest.raises(ModuleNotFoundError, match="pip install torchyard-kernels"):
        LinearFusion()


# Graphs, changed and run without a compiler.

_WEIGHT, _BIAS = _drawn(12, 8, seed=3), _drawn(12, seed=4)
_TILE, _COLUMN, _ROW = _drawn(6, 12, seed=5), _drawn(12, seed=6), _drawn(6, 1, seed=7)


def _changed(function: Callable[[Tensor], Any], x: Tensor) -> tuple[Any, list[CallSite]]:
    """Return a function's result by its changed graph, and what became of its products."""
    graph = make_fx(function, tracing_mode="fake", _allow_non_fake_inputs=True)(x)
    fusion = LinearFusion()
    fusion._change(graph.graph)
    graph.graph.lint()
    graph.recompile()
    return graph(x), list(fusion.explain())


def _linear(x: Tensor) -> Tensor:
    return torch.addmm(_BIAS, x, _WEIGHT.t())


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (lambda x: _linear(x), "linear"),
        (lambda x: torch.mm(x, _WEIGHT.t()) * _TILE, "linear mul"),
        (lambda x: torch.mm(x, _WEIGHT.t().contiguous()) + _COLUMN, "linear add"),
        (lambda x: torch.relu(_linear(x) - _ROW), "linear sub relu"),
        (lambda x: _linear(torch.tanh(x) * 2), "tanh mul linear"),
        (lambda x: torch.where(_linear(x) > 0, 1.0, 2.0), "linear gt where"),
        # What is read besides ends a function.
        (lambda x: (y := _linear(x), y.exp() + 1), "linear"),
        (lambda x: ((y := _linear(x).exp()), y + 1), "linear exp"),
        (lambda x: _linear(x).exp().softmax(-1), "linear exp"),
        (lambda x: (y := _linear(x).tanh()) - y.mean(-1, keepdim=True), "linear tanh"),
        # What no kernel has: digamma.
        (lambda x: _linear(x).exp().digamma(), "linear exp"),
        (lambda x: _linear(x.digamma()), "linear"),
        # The result has other sizes than the product.
        (lambda x: _linear(x).reshape(2, 3, 12).exp() * _TILE.reshape(2, 3, 12), "linear exp mul"),
        (lambda x: (_linear(x) * _TILE).reshape(2, 3, 12).exp(), "linear mul exp"),
        (lambda x: _linear(x).reshape(6, 3, 4).exp(), "linear"),
        (lambda x: _linear(x).t().exp(), "linear"),
        # A larger tensor than the product.
        (lambda x: _linear(x) + _TILE[None].expand(3, 6, 12), "linear"),
        # A value that the function reads before and after.
        (lambda x: torch.mm(x, _WEIGHT.t()) * torch.mm(x, _WEIGHT.t()).sigmoid(), None),
    ],
)
def test_a_function_ends_where_something_else_begins(
    function: Callable[[Tensor], Any], words: str | None
) -> None:
    x = _drawn(6, 8)
    found, sites = _changed(function, x)
    torch.testing.assert_close(found, function(x))
    assert all(site.implementation for site in sites)
    if words is not None:
        assert [site.function for site in sites] == [words]


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (lambda x: torch.addmm(_TILE, x, _WEIGHT.t()), "no bias of one dimension"),
        (lambda x: torch.addmm(_BIAS, x, _WEIGHT.t(), alpha=2), "alpha"),
        (lambda x: torch.mm(x.long(), _WEIGHT.t().long()), "torch.int64"),
        (lambda x: torch.mm(x.to(torch.complex64), _WEIGHT.t().to(torch.complex64)), "complex64"),
    ],
)
def test_other_products_are_left_alone_with_the_reason(
    function: Callable[[Tensor], Tensor], reason: str
) -> None:
    x = _drawn(6, 8)
    found, (site,) = _changed(function, x)
    torch.testing.assert_close(found, function(x))
    assert site.implementation == ""
    assert reason in site.reason


def test_what_was_measured_to_be_inductors_is_left_to_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("torchyard._registry.tuned.tuned_path", lambda: tmp_path / "tuned.json")
    fresh = torchyard.Registry()
    monkeypatch.setattr("torchyard._registry.registry._process", [fresh])
    x = _drawn(6, 8)
    _, (before,) = _changed(lambda x: _linear(x).relu(), x)
    assert (before.function, before.implementation) == ("linear relu", "cpu.native")
    metas = [tensor.to("meta") for tensor in (x, _WEIGHT, _BIAS)]
    measured = graph_call(*metas, epilogue=torch.relu).on("cpu").requests[LINEAR]
    fresh.record_fastest(LINEAR, measured, "kernels.compiled", {})
    found, (after,) = _changed(lambda x: _linear(x).relu(), x)
    assert (after.function, after.implementation) == ("linear relu", "")
    assert "kernels.compiled by tuned" in after.reason
    torch.testing.assert_close(found, _linear(x).relu())


_UNARY = (torch.tanh, torch.relu, torch.sigmoid, torch.neg, torch.abs, torch.sin)
_BINARY = (torch.add, torch.sub, torch.mul, torch.maximum)


@st.composite
def _programs(draw: st.DrawFn) -> Callable[[Tensor], list[Tensor]]:
    """Return a function with a product somewhere among pointwise operations and readers."""
    steps = draw(
        st.lists(
            st.tuples(st.integers(0, 11), st.integers(0, 30), st.integers(0, 30)),
            min_size=2,
            max_size=12,
        )
    )
    outputs = draw(st.lists(st.integers(0, 30), min_size=1, max_size=3))

    def program(x: Tensor) -> list[Tensor]:
        values = [x, _drawn(6, 8, seed=9), _drawn(1, 8, seed=10), _drawn(6, 1, seed=11)]
        for kind, first, second in steps:
            a, b = values[first % len(values)], values[second % len(values)]
            if kind < len(_UNARY):
                values.append(_UNARY[kind](a))
            elif kind < len(_UNARY) + len(_BINARY):
                values.append(_BINARY[kind - len(_UNARY)](a, b))
            else:
                wide = a.expand(6, 8).contiguous()
                values.append(torch.mm(wide, _drawn(8, 8, seed=12)))
        return [values[index % len(values)] for index in (*outputs, -1)]

    return program


@pytest.mark.sweep
@settings(max_examples=150, deadline=None)
@given(_programs())
def test_any_graph_computes_the_same(program: Callable[[Tensor], list[Tensor]]) -> None:
    x = _drawn(6, 8)
    found, _ = _changed(program, x)
    torch.testing.assert_close(list(found), program(x), rtol=1e-4, atol=1e-4)
