"""Inductor's code for the CPU computes in float16, as exactly as eager does."""

import torch

x = torch.randn(1000).half()
found = torch.compile(lambda a: torch.tanh(a * 3) + a.exp())(x)
wide = torch.tanh(x.double() * 3) + x.double().exp()
eager = torch.tanh(x * 3) + x.exp()
worst = (found.double() - wide).abs().max()
assert worst <= 2 * (eager.double() - wide).abs().max(), f"off by {worst}"
