"""A model of a few layers, with each kind that is packed together."""

from __future__ import annotations

import torch


class Gated(torch.nn.Module):
    """A gated layer as transformers' models have it."""

    def __init__(self, size, inner, bias=False):
        super().__init__()
        self.gate_proj = torch.nn.Linear(size, inner, bias=bias)
        self.up_proj = torch.nn.Linear(size, inner, bias=bias)
        self.down_proj = torch.nn.Linear(inner, size, bias=bias)
        self.act_fn = torch.nn.SiLU()

    def forward(self, x):
        return self.down_proj(self.act_fn(self.gate_proj(x)) * self.up_proj(x))


class Swapped(Gated):
    """The same names, and another function."""

    def forward(self, x):
        return self.down_proj(self.gate_proj(x) * self.act_fn(self.up_proj(x)))


class Mixing(torch.nn.Module):
    """Projections of one input."""

    def __init__(self, size, bias=False):
        super().__init__()
        self.q_proj = torch.nn.Linear(size, 128, bias=bias)
        self.k_proj = torch.nn.Linear(size, 64, bias=bias)
        self.v_proj = torch.nn.Linear(size, 64, bias=bias)
        self.o_proj = torch.nn.Linear(64, size, bias=bias)

    def forward(self, x):
        q, k, v = self.q_proj(x), self.k_proj(x), self.v_proj(x)
        return self.o_proj(torch.tanh(q[..., :64]) * k + torch.tanh(q[..., 64:]) * v)


class Model(torch.nn.Module):
    """An embedding, two blocks, and a head that is tied to the embedding."""

    def __init__(self, bias=False, size=32):
        super().__init__()
        self.embed = torch.nn.Embedding(50, size)
        self.mixing, self.gated = Mixing(size, bias), Gated(size, 64, bias)
        self.head = torch.nn.Linear(size, 50, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, tokens):
        x = self.embed(tokens)
        x = x + self.mixing(x)
        return self.head(x + self.gated(x))


def model_of(**options):
    torch.manual_seed(0)
    return Model(**options).eval()


TOKENS = torch.arange(10).reshape(2, 5)
