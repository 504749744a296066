"""The same attention in nothing but torch: every formulation that a careful user would try."""

from __future__ import annotations

import warnings
from functools import lru_cache
from typing import Any, Final, Protocol

import torch
from torch import Tensor
from torch.nn import functional

from torchyard_attention.demo._ways import Attend, Slopes


class Formulation(Protocol):
    """A formulation of attention over a whole sequence, or of one query."""

    @property
    def name(self) -> str:
        """What a person calls it."""

    def attend(self, count: int) -> Attend:
        """Return it for a sequence's length, or for a query's position."""


class DenseBias:
    """scaled_dot_product_attention with a bias [1, H, S, S] that holds slopes and window."""

    name: Final = "SDPA, dense bias"

    def __init__(self, slopes: Slopes, dtype: torch.dtype) -> None:
        self._bias = lru_cache(maxsize=4)(lambda length: _bias(slopes, length, length, dtype))

    def attend(self, count: int) -> Attend:
        """Return it for sequences of ``count``."""
        bias = self._bias(count)
        return lambda query, key, value: functional.scaled_dot_product_attention(
            query, key, value, bias
        )


class WindowLoop:
    """One scaled_dot_product_attention per window of queries, on the two windows that it sees."""

    name: Final = "SDPA, loop over windows"

    def __init__(self, slopes: Slopes, dtype: torch.dtype) -> None:
        self._window = slopes.window
        self._bias = _bias(slopes, slopes.window, 2 * slopes.window, dtype)

    def attend(self, count: int) -> Attend:
        """Return it for sequences of ``count``."""

        def attend(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
            parts = []
            for start in range(0, count, self._window):
                rows = slice(start, min(start + self._window, count))
                keys = slice(max(0, start - self._window), rows.stop)
                hidden = self._window - (start - keys.start)
                seen = slice(hidden, hidden + keys.stop - keys.start)
                bias = self._bias[:, :, : rows.stop - start, seen]
                parts.append(
                    functional.scaled_dot_product_attention(
                        query[:, :, rows], key[:, :, keys], value[:, :, keys], bias
                    )
                )
            return torch.cat(parts, dim=2)

        return attend


class WindowBatch:
    """The windows as a batch: one scaled_dot_product_attention, keys and values copied twice."""

    name: Final = "SDPA, windows as a batch"

    def __init__(self, slopes: Slopes, dtype: torch.dtype) -> None:
        self._window = slopes.window
        self._bias = _bias(slopes, slopes.window, 2 * slopes.window, dtype)

    def attend(self, count: int) -> Attend:
        """Return it for sequences of ``count``, a multiple of the window and two at least."""
        window = self._window
        if count % window or count < 2 * window:
            raise ValueError(f"needs a multiple of {window} and two windows, got {count}")
        first = self._bias[:, :, :, window:]

        def windows(tensor: Tensor) -> Tensor:
            return tensor.unfold(2, 2 * window, window).permute(0, 2, 1, 4, 3).flatten(0, 1)

        def attend(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
            near = functional.scaled_dot_product_attention(
                query[:, :, :window], key[:, :, :window], value[:, :, :window], first
            )
            rest = (
                query[:, :, window:]
                .reshape(*query.shape[:2], -1, window, query.shape[3])
                .transpose(1, 2)
                .flatten(0, 1)
            )
            far = functional.scaled_dot_product_attention(
                rest, windows(key), windows(value), self._bias
            )
            far = far.reshape(query.shape[0], -1, *far.shape[1:]).transpose(1, 2).flatten(2, 3)
            return torch.cat([near, far], dim=2)

        return attend


class StockFlex:
    """torch's own flex_attention, compiled."""

    name: Final = "torch flex_attention"

    def __init__(self, slopes: Slopes, dtype: torch.dtype) -> None:
        self._slopes = slopes

    def attend(self, count: int) -> Attend:
        """Return it for sequences of ``count``.

        Raises:
            NotImplementedError: torch cannot differentiate it on this device.
        """
        from torch.nn.attention.flex_attention import create_block_mask, flex_attention

        slopes, window = self._slopes.heads, self._slopes.window
        # Refuses at once, without compilation, where it has no backward.
        small = torch.zeros(1, len(slopes), 16, 16, device=slopes.device, requires_grad=True)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            flex_attention(small, small, small)

        def near(b: Any, h: Any, q_idx: Any, k_idx: Any) -> Any:
            return (q_idx >= k_idx) & (q_idx - k_idx < window)

        def alibi(score: Any, b: Any, h: Any, q_idx: Any, k_idx: Any) -> Any:
            return score - slopes[h] * (q_idx - k_idx)

        mask = create_block_mask(near, None, None, count, count, device=str(slopes.device))
        compiled = torch.compile(flex_attention)

        def attend(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
            out: Any = compiled(query, key, value, alibi, mask)
            return out  # type: ignore[no-any-return]

        return attend


class BiasRow:
    """scaled_dot_product_attention of one query, with a bias [1, H, 1, n] made once per byte."""

    name: Final = "SDPA, bias row"

    def __init__(self, slopes: Slopes, dtype: torch.dtype) -> None:
        self._slopes, self._dtype = slopes, dtype

    def attend(self, count: int) -> Attend:
        """Return it for the query at position ``count``."""
        bias = _row(self._slopes, count, self._dtype)
        return lambda query, key, value: functional.scaled_dot_product_attention(
            query, key, value, bias
        )


class ProductRow:
    """Two matrix products and a softmax of one query."""

    name: Final = "matmul, softmax"

    def __init__(self, slopes: Slopes, dtype: torch.dtype) -> None:
        self._slopes, self._dtype = slopes, dtype

    def attend(self, count: int) -> Attend:
        """Return it for the query at position ``count``."""
        bias = _row(self._slopes, count, self._dtype)

        def attend(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
            scores = torch.matmul(query * query.shape[3] ** -0.5, key.mT) + bias
            return torch.matmul(scores.softmax(dim=-1), value)

        return attend


class Stock:
    """A formulation of a whole sequence and one of a single query.

    Args:
        training: computes sequences; for prompts of other lengths the dense bias does.
        dense: the dense bias.
        decoding: computes one query.
        length: the training sequences' length.
    """

    def __init__(
        self, training: Formulation, dense: DenseBias, decoding: Formulation, length: int
    ) -> None:
        self.name: Final = training.name
        self._training, self._dense, self._decoding = training, dense, decoding
        self._attend, self._length = training.attend(length), length

    def whole(self, length: int) -> Attend:
        """Return attention of a sequence to itself."""
        return self._attend if length == self._length else self._dense.attend(length)

    def one(self, position: int) -> Attend:
        """Return attention of one query to the cache."""
        return self._decoding.attend(position)


TRAINING: Final = (DenseBias, WindowLoop, WindowBatch, StockFlex)
DECODING: Final = (BiasRow, ProductRow)


def _bias(slopes: Slopes, queries: int, keys: int, dtype: torch.dtype) -> Tensor:
    """Return [1, H, queries, keys], the last query beside the last key; -inf where hidden."""
    device = slopes.heads.device
    rows = torch.arange(keys - queries, keys, device=device).unsqueeze(1)
    distance = rows - torch.arange(keys, device=device)
    bias = -slopes.heads[:, None, None] * distance
    hidden = (distance < 0) | (distance >= slopes.window)
    return bias.masked_fill(hidden, -torch.inf).to(dtype).unsqueeze(0)


def _row(slopes: Slopes, position: int, dtype: torch.dtype) -> Tensor:
    """Return [1, H, 1, n]: the bias of each of the cache's slots."""
    slots = torch.arange(min(position + 1, slopes.window), device=slopes.heads.device)
    distance = (position - slots) % slopes.window
    return (-slopes.heads[:, None] * distance).to(dtype)[None, :, None]
