"""Under torch.compile the calls that exchange tensors run uncompiled, between compiled parts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor

from packages.collectives.tests.ranks import run_ranks
from torchyard_context_parallel import context_parallel_attention


def _given() -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(dist.get_rank())
    query, key, value = torch.randn(3, 1, 2, 8, 4, generator=generator, dtype=torch.float64)
    return query.requires_grad_(), key.requires_grad_(), value.requires_grad_()


def _run(query: Tensor, key: Tensor, value: Tensor, group: Any) -> Tensor:
    # Where the function reads the default group itself, torch 2.11 compiles none of it.
    out: Tensor = context_parallel_attention(query.sin(), key.cos(), value * 2, mesh=group)
    return out.tanh() + query


def _compared() -> tuple[list[list[str]], bool]:
    """Return the names of the calls in each compiled graph, and whether the values are equal."""
    graphs: list[list[str]] = []

    def backend(graph: torch.fx.GraphModule, _: Any) -> Callable[..., Any]:
        graphs.append([str(node.target) for node in graph.graph.nodes if "call" in node.op])
        return graph.forward

    results = []
    for run in (_run, torch.compile(_run, backend=backend)):
        given = _given()
        out = run(*given, dist.group.WORLD)
        out.sum().backward()
        results.append([out.detach(), *(x.grad for x in given)])
    pairs = zip(*results, strict=True)
    return graphs, all(torch.equal(a, b) for a, b in pairs if a is not None and b is not None)


def test_attention_is_between_two_graphs_and_in_neither() -> None:
    for graphs, equal in run_ranks(2, _compared):
        assert len(graphs) == 2
        assert [name for graph in graphs for name in graph if "method" not in name] == [
            "sin",
            "cos",
            "<built-in function mul>",
            "tanh",
            "<built-in function add>",
        ]
        assert equal


def _directly() -> int:
    graphs: list[Any] = []
    compiled = torch.compile(
        context_parallel_attention, backend=lambda graph, _: graphs.append(graph) or graph.forward
    )
    query, key, value = _given()
    expected = context_parallel_attention(query, key, value, mesh=dist.group.WORLD)
    assert torch.equal(compiled(query, key, value, mesh=dist.group.WORLD), expected)
    return len(graphs)


def test_a_compiled_call_runs_uncompiled() -> None:
    assert run_ranks(2, _directly) == [0, 0]


def _layer_calls() -> list[tuple[Callable[..., Any], str]]:
    from torchyard_context_parallel.transformers import _layers

    return [
        (context_parallel_attention, "ranks exchange keys in the middle of it"),
        (_layers.spread_attention, "ranks agree in it"),
        (_layers.spread_mask, "ranks agree in it"),
    ]


def test_a_whole_graph_is_refused_with_the_reason() -> None:
    for function, reason in _layer_calls():

        @torch.compile(backend="eager", fullgraph=True)
        def compiled(x: Tensor, function: Any = function) -> Any:
            return function(x.sin())

        with pytest.raises(torch._dynamo.exc.Unsupported, match=reason):
            compiled(torch.ones(2))
