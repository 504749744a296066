"""Functions that graphs are made of: a chain of small operators, and a decoder with a cache."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

__all__ = ["Decoder", "chain"]


def chain(x: Tensor, y: Tensor) -> Tensor:
    """Apply 64 operators, one after the other."""
    for at in range(64):
        x = x + y if at % 2 else x * y
    return x


class _Block(nn.Module):
    def __init__(self, size: int, heads: int, length: int) -> None:
        super().__init__()
        self.heads = heads
        self.before, self.between = nn.RMSNorm(size), nn.LayerNorm(size)
        self.projections, self.out = nn.Linear(size, 3 * size), nn.Linear(size, size)
        self.up, self.down = nn.Linear(size, 4 * size), nn.Linear(4 * size, size)
        for name in ("keys", "values"):
            self.register_buffer(name, torch.zeros(1, heads, length, size // heads), False)

    def forward(self, x: Tensor, position: Tensor) -> Tensor:
        size = x.shape[-1]
        projected = self.projections(self.before(x)).view(1, 1, 3, self.heads, size // self.heads)
        query, key, value = projected.permute(2, 0, 3, 1, 4)
        self.keys.index_copy_(2, position, key)
        self.values.index_copy_(2, position, value)
        seen = (torch.arange(self.keys.shape[2], device=x.device) <= position)[None, None, None]
        attended = F.scaled_dot_product_attention(query, self.keys, self.values, attn_mask=seen)
        x = x + self.out(attended.transpose(1, 2).reshape(1, 1, size))
        return x + self.down(F.gelu(self.up(self.between(x))))


class Decoder(nn.Module):
    """A transformer that continues one token at a time."""

    def __init__(
        self, size: int = 32, heads: int = 4, blocks: int = 2, words: int = 50, length: int = 16
    ) -> None:
        super().__init__()
        self.embedding, self.head = nn.Embedding(words, size), nn.Linear(size, words)
        self.blocks = nn.ModuleList(_Block(size, heads, length) for _ in range(blocks))

    def cache(self) -> list[Tensor]:
        """Return the keys and values of all blocks, which each step adds to."""
        return [tensor for block in self.blocks for tensor in (block.keys, block.values)]

    @torch.no_grad()
    def step(self, token: Tensor, position: Tensor) -> Tensor:
        """Return the next token [1, 1] of one [1, 1] at a position [1]."""
        x = self.embedding(token)
        for block in self.blocks:
            x = block(x, position)
        return self.head(x).argmax(-1)
