"""max-autotune multiplies matrices by a template of Inductor's, with an epilogue in it."""

import torch
from torch import nn

model = nn.Sequential(nn.Linear(64, 128), nn.GELU()).eval()
x = torch.randn(64, 64)
with torch.no_grad():
    found = torch.compile(model, mode="max-autotune")(x)
    torch.testing.assert_close(found, model(x), rtol=1e-4, atol=1e-4)
