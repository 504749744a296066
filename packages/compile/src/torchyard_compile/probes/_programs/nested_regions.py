"""A region that is marked is compiled once for all of its calls in a whole-model compile."""

import torch

calls = []


def backend(graph, inputs):
    calls.append(sum(node.op == "call_function" for node in graph.graph.nodes))
    return graph.forward


@torch.compiler.nested_compile_region
def block(x):
    return torch.sin(torch.cos(x) * 2) + x


def model(x):
    for _ in range(6):
        x = block(x)
    return x


x = torch.randn(5)
found = torch.compile(model, backend=backend, fullgraph=True)(x)
torch.testing.assert_close(found, model(x))
# Inlined, each of six calls would be four operations.
assert calls[0] < 24, f"{calls[0]} operations: the region was inlined"
