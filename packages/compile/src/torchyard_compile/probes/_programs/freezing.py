"""Freezing folds constants of a model that is compiled."""

import torch
from torch import nn
from torch._inductor import config

config.freezing = True
model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU()).eval()
x = torch.randn(1, 3, 8, 8)
with torch.no_grad():
    torch.testing.assert_close(torch.compile(model)(x), model(x), rtol=1e-4, atol=1e-5)
