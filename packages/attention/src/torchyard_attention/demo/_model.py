"""A byte-level transformer: pre-norm, no position embeddings but the attention's slopes.

B batch, S bytes, H heads, D head size, C = H * D width.
"""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional

from torchyard_attention.demo._settings import Size
from torchyard_attention.demo._ways import Attend

_BYTES = 256
_STD = 0.02
# Larger than the usual 0.02: a short training has no time to grow it.
_EMBEDDING_STD = 0.1


class Memory(Protocol):
    """Where keys and values of earlier positions are kept."""

    def extend(self, layer: int, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """Keep a layer's new keys and values [B, H, S, D]; return those to attend to."""


class Block(nn.Module):
    """Attention, then two linear layers with a GELU between; each behind a norm, each added."""

    def __init__(self, size: Size, layer: int) -> None:
        super().__init__()
        width = size.width
        self._layer, self._heads = layer, size.heads
        self.attention_norm = nn.LayerNorm(width)
        self.query_key_value = nn.Linear(width, 3 * width, bias=False)
        self.out = nn.Linear(width, width, bias=False)
        self.mixing_norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, 4 * width, bias=False)
        self.down = nn.Linear(4 * width, width, bias=False)

    def forward(self, x_bsc: Tensor, attend: Attend, memory: Memory | None) -> Tensor:
        """Return [B, S, C]."""
        projected = self.query_key_value(self.attention_norm(x_bsc))
        query, key, value = projected.unflatten(2, (3, self._heads, -1)).permute(2, 0, 3, 1, 4)
        if memory is not None:
            key, value = memory.extend(self._layer, key, value)
        mixed_bhsd = attend(query, key, value)
        x_bsc = x_bsc + self.out(mixed_bhsd.transpose(1, 2).flatten(2))
        hidden = functional.gelu(self.up(self.mixing_norm(x_bsc)))
        down: Tensor = self.down(hidden)
        return x_bsc + down


class Transformer(nn.Module):
    """The model. Which attention it computes with is an argument of each call.

    Args:
        size: the model's sizes.
    """

    def __init__(self, size: Size) -> None:
        super().__init__()
        self.size = size
        self.embedding = nn.Embedding(_BYTES, size.width)
        self.blocks = nn.ModuleList(Block(size, layer) for layer in range(size.layers))
        self.norm = nn.LayerNorm(size.width)
        self.head = nn.Linear(size.width, _BYTES, bias=False)
        for name, parameter in self.named_parameters():
            if parameter.ndim == 2:
                # Sources of the two scales: GPT-2, section 2.3.
                joins = name.endswith(("out.weight", "down.weight"))
                scale = (2 * size.layers) ** -0.5 if joins else 1.0
                nn.init.normal_(parameter, std=_STD * scale)
        nn.init.normal_(self.embedding.weight, std=_EMBEDDING_STD)

    def forward(self, bytes_bs: Tensor, attend: Attend, memory: Memory | None = None) -> Tensor:
        """Return logits [B, S, 256] for the byte that follows each byte.

        Args:
            bytes_bs: int64 [B, S].
            attend: computes the attention of all layers.
            memory: where earlier keys and values are; None: there are none.
        """
        x_bsc = self.embedding(bytes_bs)
        for block in self.blocks:
            x_bsc = block(x_bsc, attend, memory)
        logits: Tensor = self.head(self.norm(x_bsc))
        return logits

    def loss(self, bytes_bs: Tensor, attend: Attend) -> Tensor:
        """Return the mean loss of sequences [B, S + 1] in nats per byte."""
        logits = self(bytes_bs[:, :-1], attend)
        return functional.cross_entropy(logits.flatten(0, 1).float(), bytes_bs[:, 1:].flatten())


def count_parameters(model: nn.Module) -> int:
    """Return how many numbers the model learns."""
    return sum(parameter.numel() for parameter in model.parameters())


def seeded_model(size: Size, seed: int, device: torch.device) -> Transformer:
    """Return a model with weights that depend on the seed alone, not on the device."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return Transformer(size).to(device)
