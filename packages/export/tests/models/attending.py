"""Models with attention: a small decoder on torchyard's operator, and a published encoder."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn


class Decoder(nn.Module):
    """One block over tokens, with torchyard's attention in it."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(20, 32)
        self.mix = nn.Linear(32, 96)
        self.out = nn.Linear(32, 20)

    def forward(self, text: Tensor) -> Tensor:
        from torchyard_attention import flex_attention

        x = self.embed(text)
        q, k, v = (part.unflatten(-1, (2, 16)).transpose(1, 2) for part in self.mix(x).chunk(3, -1))
        y = flex_attention(q, k, v, scale=0.25)
        scores: Tensor = self.out(x + y.transpose(1, 2).flatten(2))
        return scores


class Encoder(nn.Module):
    """The transformer, the mean over each text's tokens, and its direction."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        found = self.model(input_ids=input_ids, attention_mask=attention_mask)
        inside = attention_mask[..., None].to(found.last_hidden_state.dtype)
        mean = (found.last_hidden_state * inside).sum(1) / inside.sum(1)
        return nn.functional.normalize(mean, dim=-1)


def decoder() -> dict[str, Any]:
    """Return the decoder and its call, as arguments of export."""
    torch.manual_seed(0)
    return {
        "model": Decoder().eval(),
        "args": (torch.randint(0, 20, (2, 9)),),
        "dynamic": {"text": {0: "batch:1..4", 1: "time:1..40"}},
    }


def encoder() -> dict[str, Any]:
    """Return all-MiniLM-L6-v2 and its call; ModuleNotFoundError where it is not installed."""
    from benchmarks.models import embedding

    batch = embedding.tokens(embedding.sources(6))

    def sample(sizes: dict[str, int], generator: torch.Generator) -> dict[str, Any]:
        shape = (sizes["batch"], sizes["time"])
        ends = torch.randint(1, sizes["time"] + 1, (sizes["batch"], 1), generator=generator)
        return {
            "input_ids": torch.randint(1000, 20000, shape, generator=generator),
            "attention_mask": (torch.arange(sizes["time"]) < ends).long(),
        }

    return {
        "model": Encoder(embedding.load("sdpa")).eval(),
        "args": (batch["input_ids"][:, :128], batch["attention_mask"][:, :128]),
        "dynamic": {
            "input_ids": {0: "batch:1..8", 1: "time:1..128"},
            "attention_mask": {0: "batch", 1: "time"},
        },
        "sample": sample,
    }
