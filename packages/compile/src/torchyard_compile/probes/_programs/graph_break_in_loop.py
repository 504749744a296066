"""A line that cannot be compiled, in a loop, keeps the result right."""

import torch


def counted(x):
    for step in range(3):
        x = x + step
        torch._dynamo.graph_break()
    return x


x = torch.zeros(2)
assert torch.equal(torch.compile(counted, backend="aot_eager")(x), counted(x))
