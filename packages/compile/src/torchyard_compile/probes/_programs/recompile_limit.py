"""A function that is compiled too often says so, and does not run uncompiled in silence."""

import warnings

import torch

with warnings.catch_warnings(record=True) as said:
    warnings.simplefilter("always")
    compiled = torch.compile(lambda x: x + 1, backend="aot_eager", dynamic=False)
    for length in range(2, 40):
        compiled(torch.ones(length))
assert said, "39 shapes, torch's limit of recompilations, and no warning"
