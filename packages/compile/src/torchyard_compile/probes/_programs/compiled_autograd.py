"""Compiled autograd gives the gradients of a model with a hook."""

import torch
from torch import nn

torch._dynamo.config.compiled_autograd = True
model = nn.Linear(4, 4)
model.weight.register_hook(lambda gradient: gradient * 2)
x = torch.randn(3, 4)


@torch.compile(backend="aot_eager")
def train(x):
    model(x).sum().backward()


train(x)
found = model.weight.grad.clone()
model.weight.grad = None
torch._dynamo.config.compiled_autograd = False
model(x).sum().backward()
torch.testing.assert_close(found, model.weight.grad)
