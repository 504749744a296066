"""The all-gather schedule: a rank receives all keys that its queries see, then computes."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import torch
from torch import Tensor

from torchyard_attention import attention_gradients, flex_attention
from torchyard_context_parallel._methods.attempt import Attempt
from torchyard_context_parallel._methods.call import Call
from torchyard_context_parallel._methods.exchange import exchange
from torchyard_context_parallel._methods.gradient_sums import CapturedSums
from torchyard_context_parallel._methods.heads import wide
from torchyard_context_parallel._sharding import Ranges, in_order, length_of, merged, out_of_order


class Gathered:
    """The schedule ``allgather``: one kernel call, and memory for the keys that are seen."""

    def forward(
        self, call: Call, query: Tensor, key: Tensor, value: Tensor, attempt: Attempt
    ) -> tuple[Tensor, Tensor]:
        """Return out and lse of this rank's queries over all ranks' keys."""
        sources = self._sources(call)
        # Every rank takes part in the exchange of keys, whether or not it reads any.
        keys = self._gather(call, sources, key, value)
        found = attempt.run(lambda: self._attend(call, sources, query, keys)) if sources else None
        if found is None:
            shape = (*query.shape[:3], value.shape[3])
            return query.new_zeros(shape), query.new_full(shape[:3], -math.inf, dtype=wide(query))
        return found

    def backward(
        self,
        call: Call,
        inputs: tuple[Tensor, Tensor, Tensor],
        results: tuple[Tensor, Tensor],
        grads: tuple[Tensor, Tensor | None],
        captured: CapturedSums,
        attempt: Attempt,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return the gradients of this rank's queries, keys and values."""
        query, key, value = inputs
        sources = self._sources(call)
        query_grad = torch.zeros_like(query)
        shares: dict[int, list[Tensor]] = {}
        keys = self._gather(call, sources, key, value)
        if sources:
            ranges = [call.keys[source] for source in sources]
            part = attempt.run(
                partial(self._differentiate, call, ranges, query, *keys, *results, *grads)
            )
            key_grad, value_grad = map(torch.zeros_like, keys)
            if part is not None:
                query_grad, key_grad, value_grad = part.query, part.key, part.value
                captured.add(part.captured)
            pieces = zip(
                out_of_order(ranges, key_grad, 2), out_of_order(ranges, value_grad, 2), strict=True
            )
            shares = {source: list(pair) for source, pair in zip(sources, pieces, strict=True)}
        sums = [torch.zeros_like(tensor, dtype=wide(tensor)) for tensor in (key, value)]
        received = {call.rank: shares.pop(call.rank, [])}
        if call.ring is not None:
            readers = [
                rank
                for rank in range(call.ranks)
                if rank != call.rank and call.needs(rank, call.rank)
            ]
            wanted = {
                rank: [tensor.new_empty(tensor.shape) for tensor in (key, value)]
                for rank in readers
            }
            received |= exchange(call.ring, shares, wanted).wait()
        for rank in sorted(received):
            for total, gradient in zip(sums, received[rank], strict=False):
                total += gradient
        return query_grad, sums[0].to(key.dtype), sums[1].to(value.dtype)

    @staticmethod
    def _sources(call: Call) -> list[int]:
        return [rank for rank in range(call.ranks) if call.needs(call.rank, rank)]

    @staticmethod
    def _gather(call: Call, sources: list[int], key: Tensor, value: Tensor) -> list[Tensor]:
        """Return keys and values of some ranks, in order."""
        received = {call.rank: [key, value]}
        if call.ring is not None:
            lengths = list(map(length_of, call.keys))
            readers = [rank for rank in range(call.ranks) if call.needs(rank, call.rank)]
            received |= exchange(
                call.ring,
                {rank: [key, value] for rank in readers if rank != call.rank},
                {
                    rank: [
                        tensor.new_empty((*tensor.shape[:2], lengths[rank], tensor.shape[3]))
                        for tensor in (key, value)
                    ]
                    for rank in sources
                    if rank != call.rank
                },
            ).wait()
        if not sources:
            return []
        ranges = [call.keys[source] for source in sources]
        return [in_order(ranges, [received[s][n] for s in sources], 2) for n in (0, 1)]

    @staticmethod
    def _attend(
        call: Call, sources: list[int], query: Tensor, keys: list[Tensor]
    ) -> tuple[Tensor, Tensor]:
        modifiers = call.modifiers(merged([call.keys[source] for source in sources]), query.device)
        out, lse = flex_attention(query, keys[0], keys[1], return_lse=True, **modifiers)
        return out, lse

    @staticmethod
    def _differentiate(call: Call, ranges: list[Ranges], query: Tensor, *more: Any) -> Any:
        return attention_gradients(query, *more, **call.modifiers(merged(ranges), query.device))
