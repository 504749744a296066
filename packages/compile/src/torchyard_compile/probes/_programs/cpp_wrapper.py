"""Inductor writes its wrapper in C++."""

import torch
from torch._inductor import config

config.cpp_wrapper = True
x, y = torch.randn(8, 8), torch.randn(8, 8)
found = torch.compile(lambda a, b: (a @ b).relu().sum(-1))(x, y)
torch.testing.assert_close(found, (x @ y).relu().sum(-1))
