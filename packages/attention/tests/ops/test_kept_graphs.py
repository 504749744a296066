"""Graphs that torch.compile keeps on disk name the sources of the ops in them."""

from __future__ import annotations

import pytest
import torch
from functorch.compile import make_boxed_func
from torch._dynamo.backends.common import aot_autograd

from packages.core.tests.torch_features import graphs_name_sources
from torchyard_attention import (
    BlockMask,
    PagedKVCache,
    create_block_mask,
    flex_attention,
    varlen_attention,
)
from torchyard_attention._ops._operators import OPERATORS


def _causal(b, h, q, k):
    return q >= k


def _attended(x, counts, indices, starts):
    length = x.shape[2]
    made = create_block_mask(_causal, None, None, length, length, device="cpu")
    given = BlockMask.from_kv_blocks(counts, indices, mask_mod=_causal, seq_lengths=(length,) * 2)
    packed = x[0].transpose(0, 1)
    rows = varlen_attention(packed, packed, packed, starts, causal=True)
    masked = flex_attention(x, x, x, block_mask=made) + flex_attention(x, x, x, block_mask=given)
    return masked.sum() + rows.sum()


def _decoded(step, x):
    step.write(x, x)
    return step.attention(x)


def _ours(graph):
    ops = {node.target for node in graph.nodes if node.op == "call_function"}
    return {op for op in ops if getattr(op, "namespace", None) == OPERATORS.namespace}


def test_a_compiled_graph_names_the_sources_of_every_op():
    if not graphs_name_sources():
        pytest.skip("this torch's compiled graphs have ops' lasting names")
    called = set()

    def note(graph, example_inputs):
        called.update(_ours(graph.graph))
        return make_boxed_func(graph.forward)

    torch.compiler.reset()
    backend = aot_autograd(fw_compiler=note, bw_compiler=note)
    x = torch.randn(1, 2, 8, 4, requires_grad=True)
    counts = torch.ones(1, 1, 1, dtype=torch.int32)
    indices = torch.zeros(1, 1, 1, 1, dtype=torch.int32)
    given = counts, indices, torch.tensor([0, 3, 8])
    torch.compile(_attended, fullgraph=True, backend=backend)(x, *given).backward()
    cache = PagedKVCache(4, 4, kv_heads=2, head_dim=4)
    step = cache.extend([cache.open()])
    with torch.no_grad():
        torch.compile(_decoded, fullgraph=True, backend=backend)(step, torch.randn(1, 2, 4))
    assert {op._overloadname for op in called} == {OPERATORS.overload}
    assert {op._opname for op in called} == set(OPERATORS._calls)


def test_an_exported_program_names_ops_by_names_that_last():
    class Model(torch.nn.Module):
        def forward(self, x, counts, indices, starts):
            return _attended(x, counts, indices, starts)

    counts = torch.ones(1, 1, 1, dtype=torch.int32)
    indices = torch.zeros(1, 1, 1, 1, dtype=torch.int32)
    given = torch.randn(1, 2, 8, 4), counts, indices, torch.tensor([0, 3, 8])
    called = _ours(torch.export.export(Model(), given).graph)
    assert {op._overloadname for op in called} == {"default"}
    assert {op._opname for op in called} == set(OPERATORS._calls) - {"backward", "paged_forward"}
