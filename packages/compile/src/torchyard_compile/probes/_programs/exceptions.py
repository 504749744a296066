"""Dynamo traces a function that raises and catches an exception."""

import torch


def checked(x):
    try:
        if x.shape[0] != 4:
            raise ValueError("length")
        return x + 1
    except ValueError:
        return x - 1


compiled = torch.compile(checked, backend="aot_eager", fullgraph=True)
assert torch.equal(compiled(torch.ones(4)), torch.full((4,), 2.0))
assert torch.equal(compiled(torch.ones(3)), torch.zeros(3))
