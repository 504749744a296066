"""The ring schedule: a rank computes its queries over one rank's keys after another's.

Source: Ring Attention (arXiv 2310.01889), section 3. Keys are sent by the rank that holds them and
not passed on, so that a rank whose keys nobody further on sees sends nothing; and the next rank's
keys arrive while this one's are computed. Partial results are summed up in float32, or in float64
where the inputs are.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import torch
from torch import Tensor

from torchyard_attention import attention_gradients, flex_attention, merge_states
from torchyard_context_parallel._methods.attempt import Attempt
from torchyard_context_parallel._methods.call import Call
from torchyard_context_parallel._methods.exchange import Pending, exchange
from torchyard_context_parallel._methods.gradient_sums import CapturedSums
from torchyard_context_parallel._methods.heads import wide
from torchyard_context_parallel._sharding import length_of


class Ring:
    """The schedule ``ring``."""

    def forward(
        self, call: Call, query: Tensor, key: Tensor, value: Tensor, attempt: Attempt
    ) -> tuple[Tensor, Tensor]:
        """Return out and lse of this rank's queries over all ranks' keys."""
        out: Tensor | None = None
        lse: Tensor | None = None
        coming = self._fetch(call, key, value, 1)
        for step in range(call.ranks):
            source = (call.rank - step) % call.ranks
            keys = [key, value] if step == 0 else coming.wait()[source]
            if step:
                coming = self._fetch(call, key, value, step + 1)
            if not call.needs(call.rank, source):
                continue
            found = attempt.run(partial(_attend, call, source, query, *keys))
            if found is None:
                continue
            part, part_lse = found
            if out is None or lse is None:
                out, lse = part, part_lse
            else:
                out, lse = merge_states([out.to(wide(out)), part.to(wide(part))], [lse, part_lse])
        if out is None or lse is None:
            shape = (*query.shape[:3], value.shape[3])
            out = query.new_zeros(shape)
            lse = query.new_full(shape[:3], -math.inf, dtype=wide(query))
        return out.to(query.dtype), lse

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
        sums = [torch.zeros_like(tensor, dtype=wide(tensor)) for tensor in inputs]
        coming = self._fetch(call, key, value, 1)
        returning: Pending | None = None
        for step in range(call.ranks):
            source, reader = (call.rank - step) % call.ranks, (call.rank + step) % call.ranks
            keys = [key, value] if step == 0 else coming.wait()[source]
            if step:
                coming = self._fetch(call, key, value, step + 1)
            given: list[Tensor] = []
            if call.needs(call.rank, source):
                part = attempt.run(
                    partial(_differentiate, call, source, query, *keys, *results, *grads)
                )
                if part is None:
                    given = [torch.zeros_like(tensor) for tensor in keys]
                else:
                    sums[0] += part.query
                    captured.add(part.captured)
                    given = [part.key, part.value]
            self._add(returning, sums)
            returning = None
            if step == 0:
                for total, gradient in zip(sums[1:], given, strict=False):
                    total += gradient
                continue
            wanted = [key, value] if call.needs(reader, call.rank) else []
            assert call.ring is not None
            returning = exchange(
                call.ring,
                {source: given},
                {reader: [tensor.new_empty(tensor.shape) for tensor in wanted]},
            )
        self._add(returning, sums)
        query_sum, key_sum, value_sum = sums
        return query_sum.to(query.dtype), key_sum.to(key.dtype), value_sum.to(value.dtype)

    @staticmethod
    def _fetch(call: Call, key: Tensor, value: Tensor, step: int) -> Pending:
        """Begin to get the keys of a step, and to send this rank's to who needs them then."""
        if step >= call.ranks or call.ring is None:
            return Pending({}, [], [])
        source, reader = (call.rank - step) % call.ranks, (call.rank + step) % call.ranks
        length = length_of(call.keys[source])
        empty = [
            tensor.new_empty((*tensor.shape[:2], length, tensor.shape[3]))
            for tensor in (key, value)
        ]
        return exchange(
            call.ring,
            {reader: [key, value] if call.needs(reader, call.rank) else []},
            {source: empty if call.needs(call.rank, source) else []},
        )

    @staticmethod
    def _add(returning: Pending | None, sums: list[Tensor]) -> None:
        """Add what a reader computed for this rank's keys, in the order of the steps."""
        if returning is None:
            return
        for gradients in returning.wait().values():
            for total, gradient in zip(sums[1:], gradients, strict=False):
                total += gradient


def _attend(
    call: Call, source: int, query: Tensor, key: Tensor, value: Tensor
) -> tuple[Tensor, Tensor]:
    """Return out and lse of this rank's queries over one rank's keys."""
    modifiers = call.modifiers(call.keys[source], query.device)
    out, lse = flex_attention(query, key, value, return_lse=True, **modifiers)
    return out, lse


def _differentiate(call: Call, source: int, query: Tensor, key: Tensor, *more: Any) -> Any:
    """Return the gradients between this rank's queries and one rank's keys."""
    modifiers = call.modifiers(call.keys[source], query.device)
    return attention_gradients(query, key, *more, **modifiers)
