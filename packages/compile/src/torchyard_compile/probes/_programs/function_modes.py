"""A TorchFunctionMode of the user's is traced through, and changes what is computed."""

import torch
from torch.overrides import TorchFunctionMode


class Doubled(TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        return result * 2 if func is torch.sin else result


x = torch.randn(4)
with Doubled():
    found = torch.compile(lambda a: torch.sin(a) + 1, backend="aot_eager", fullgraph=True)(x)
torch.testing.assert_close(found, torch.sin(x) * 2 + 1)
