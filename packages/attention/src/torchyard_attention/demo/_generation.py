"""Generation with a cache of keys and values that holds one window, however long the text."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor

from torchyard_attention.demo._model import Transformer
from torchyard_attention.demo._settings import Settings, Size
from torchyard_attention.demo._training import computing
from torchyard_attention.demo._ways import Way

_TEMPERATURE: Final = 0.7


class Ring:
    """Keys and values of the newest ``window`` positions; position p lies in slot p % window.

    Args:
        size: the model's sizes.
        like: of the cache's dtype and on its device.
    """

    def __init__(self, size: Size, like: Tensor) -> None:
        shape = (size.layers, 2, 1, size.heads, size.window, size.head_dim)
        self._cache = like.new_zeros(shape)
        self._window = size.window
        self.position = 0

    def extend(self, layer: int, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """Keep new keys and values [1, H, S, D]; return those to attend to.

        A whole prompt attends to itself; a single later position to all that is kept.
        """
        new = key.shape[2]
        kept = self._cache[layer]
        if new == 1:
            slot = self.position % self._window
            kept[0, :, :, slot] = key[:, :, 0]
            kept[1, :, :, slot] = value[:, :, 0]
            filled = min(self.position + 1, self._window)
            return kept[0, :, :, :filled], kept[1, :, :, :filled]
        first = max(0, new - self._window)
        slots = torch.arange(first, new, device=key.device) % self._window
        kept[0].index_copy_(2, slots, key[:, :, first:])
        kept[1].index_copy_(2, slots, value[:, :, first:])
        return key, value


@dataclass(frozen=True, slots=True)
class Choice:
    """How the next byte is chosen.

    Attributes:
        generator: samples at temperature 0.7; None: the likeliest byte.
    """

    generator: torch.Generator | None = None

    def of(self, logits: Tensor) -> Tensor:
        """Return int64 [1] from logits [256], on their device."""
        if self.generator is None:
            return logits.argmax(dim=-1, keepdim=True)
        chance = (logits.float().cpu() / _TEMPERATURE).softmax(dim=-1)
        return torch.multinomial(chance, 1, generator=self.generator).to(logits.device)


class Session:
    """A text in the making: a model, its cache, and the way in which it attends."""

    def __init__(self, model: Transformer, way: Way, settings: Settings) -> None:
        self._model, self._way, self._settings = model, way, settings
        like = torch.empty(0, dtype=settings.dtype, device=settings.device)
        self._ring = Ring(model.size, like)

    @torch.no_grad()
    def read(self, prompt: Tensor) -> Tensor:
        """Take in a prompt, int64 [S]; return the logits [256] of the byte that follows it."""
        with computing(self._settings):
            attend = self._way.whole(len(prompt))
            logits: Tensor = self._model(prompt[None], attend, self._ring)[0, -1]
        self._ring.position = len(prompt)
        return logits

    @torch.no_grad()
    def feed(self, byte: Tensor) -> Tensor:
        """Take in one byte, int64 [1]; return the logits [256] of the next."""
        with computing(self._settings):
            attend = self._way.one(self._ring.position)
            logits: Tensor = self._model(byte[None], attend, self._ring)[0, -1]
        self._ring.position += 1
        return logits


def continuation(session: Session, prompt: Tensor, count: int, choice: Choice) -> Iterator[Tensor]:
    """Yield ``count`` bytes, int64 [1] each, that continue a prompt, int64 [S]."""
    logits = session.read(prompt)
    for index in range(count):
        byte = choice.of(logits)
        yield byte
        if index + 1 < count:
            logits = session.feed(byte)


def encode(text: str, device: torch.device) -> Tensor:
    """Return a text's bytes, int64 [S]."""
    return torch.tensor(list(text.encode()), device=device)


def decode(tokens: Tensor) -> str:
    """Return bytes as text that is safe to print."""
    text = bytes(tokens.tolist()).decode(errors="replace")
    return "".join(
        c if c.isprintable() or c in "\n\t" else "\N{REPLACEMENT CHARACTER}" for c in text
    )
