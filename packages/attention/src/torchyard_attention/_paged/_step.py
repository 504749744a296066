"""PagedStep: the newest positions of some sequences, ready to be written and to attend."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from torchyard import Decision, arguments, note_use, registry
from torchyard_attention._api import AuxOutput, AuxRequest, ScoreModFunction
from torchyard_attention._block_mask import BlockMask, MaskMod
from torchyard_attention._mods._recordings import recorded
from torchyard_attention._mods._trace import lse_dtype
from torchyard_attention._ops._arguments import score_mod_of
from torchyard_attention._paged._op import paged_forward, paged_request
from torchyard_attention._paged._placed_mask import Places, placed_mask
from torchyard_attention._validation import FLOATS, check_flags, parse_options
from torchyard_attention.contract import FORWARD, AttentionCall, MaskBlocks
from torchyard_attention.pages import KeyPages


@dataclass(frozen=True, slots=True, eq=False)
class Group:
    """Sequences of a step that have equally many new positions.

    Attributes:
        rows: int64 [B * count]: which of the step's packed rows are theirs; None: all, in order.
        places: the positions of their queries.
        table: int32 [B, N]: their pages, 0 after the last.
        lengths: int32 [B]: their keys.
        causal: what their queries see of each other; None for one query, which sees everything.
    """

    rows: Tensor | None
    places: Places
    table: Tensor
    lengths: Tensor
    causal: BlockMask | None


@dataclass(frozen=True, slots=True, eq=False)
class PagedStep:
    """The last positions of some sequences of a PagedKVCache, for all of its layers.

    Made by ``PagedKVCache.extend``, once per step of a model; each layer then writes its keys and
    values, and attends. It is valid until the cache is changed again: opening, forking, extending,
    truncating or closing any sequence ends it. ``write`` and ``attention`` can be part of a graph
    of torch.compile(fullgraph=True), with the step as an argument.

    Attributes:
        counts: how many positions each sequence has in this step.
        page, slot: int64 [T]: the page of each position, one sequence after another, and its place
            in the page.
        groups: the sequences, by their counts.
        keys, values: the pools of each layer.
        ended: returns whether the cache was changed since.
    """

    counts: tuple[int, ...]
    page: Tensor
    slot: Tensor
    groups: tuple[Group, ...]
    keys: tuple[Tensor, ...]
    values: tuple[Tensor, ...]
    ended: Callable[[], bool]

    def write(self, key: Tensor, value: Tensor, *, layer: int = 0) -> None:
        """Write the step's keys and values into the pages.

        Args:
            key: [T, Hkv, D], the positions of all sequences one after another; or [B, Hkv, S, D],
                where every sequence has S.
            value: [T, Hkv, V] or [B, Hkv, S, V].
            layer: whose.

        Raises:
            ValueError, TypeError: an argument does not fit, or the step has ended.
        """
        layer = self._checked_layer("PagedStep.write", layer)
        for name, new, pool in (
            ("key", key, self.keys[layer]),
            ("value", value, self.values[layer]),
        ):
            self.check_new(name, new, pool, self.counts)
        for new, pool in ((key, self.keys[layer]), (value, self.values[layer])):
            packed = new.detach() if new.ndim == 3 else new.detach().transpose(1, 2).flatten(0, 1)
            pool[self.page, :, self.slot] = packed

    def attention(
        self,
        query: Tensor,
        *,
        layer: int = 0,
        score_mod: ScoreModFunction | None = None,
        mask_mod: MaskMod | None = None,
        causal: bool = True,
        scale: float | None = None,
        kernel_options: dict[str, Any] | None = None,
        return_aux: AuxRequest | None = None,
        implementation: str | None = None,
    ) -> Any:
        """Compute attention of the step's positions over all keys of their sequences.

        What a query gets does not depend on the other sequences of the step, nor on which pages its
        own sequence has: not in a single bit.

        Args:
            query: [T, Hq, D], one sequence after another; or [B, Hq, S, D], where every sequence
                has S positions. Hkv divides Hq.
            layer: whose keys and values.
            score_mod: as for flex_attention; ``b`` is the number of the sequence in the step,
                ``q_idx`` and ``kv_idx`` are positions in the sequence.
            mask_mod: ``(b, h, q_idx, kv_idx) -> bool``, with the same indices.
            causal: hide later positions, besides what mask_mod hides.
            scale: multiplies the raw scores; None: 1 / sqrt(D).
            kernel_options: as for flex_attention.
            return_aux: which auxiliary outputs to return, as (out, AuxOutput); each in query's form
                without its last dimension.
            implementation: demand this implementation of ``attention/1``.

        Returns:
            out [T, Hq, V] or [B, Hq, S, V], in query's dtype; or (out, AuxOutput).

        Raises:
            ValueError, TypeError: an argument does not fit, or the step has ended.
            ProgramError: score_mod or mask_mod does something that cannot be recorded.
            torchyard.UnsupportedError: no implementation supports the call.
        """
        of = "PagedStep.attention"
        layer = self._checked_layer(of, layer)
        scale = _check_kinds(
            of, query, score_mod, mask_mod, causal, return_aux, implementation, scale
        )
        options = parse_options(of, kernel_options)
        self._check_query(query, layer)
        if not torch.compiler.is_compiling():
            note_use("attention.flex_attention", query.device.type)
        aux = return_aux or AuxRequest()
        calls = [
            self._call(query, group, layer, score_mod, mask_mod, causal, scale, aux, options)
            for group in self.groups
        ]
        parts = [paged_forward(call, implementation or "") for call in calls]
        out = self._joined(query, [part.out for part in parts])
        if return_aux is None:
            return out
        lse = [part.lse for part in parts if part.lse is not None]
        most = [part.max_scores for part in parts if part.max_scores is not None]
        return out, AuxOutput(
            self._joined(query, lse) if aux.lse else None,
            self._joined(query, most) if aux.max_scores else None,
        )

    def explain(
        self,
        query: Tensor,
        *,
        layer: int = 0,
        score_mod: ScoreModFunction | None = None,
        mask_mod: MaskMod | None = None,
        causal: bool = True,
        return_aux: AuxRequest | None = None,
        implementation: str | None = None,
    ) -> tuple[Decision, ...]:
        """Return the decisions that :meth:`attention` would take, one per group of sequences."""
        of = "PagedStep.explain"
        layer = self._checked_layer(of, layer)
        _check_kinds(of, query, score_mod, mask_mod, causal, return_aux, implementation, None)
        self._check_query(query, layer)
        aux = return_aux or AuxRequest()
        calls = [
            self._call(query, group, layer, score_mod, mask_mod, causal, None, aux, ())
            for group in self.groups
        ]
        requests = [paged_request(call) for call in calls]
        return tuple(registry().decide(FORWARD, one, use=implementation) for one in requests)

    def _call(
        self,
        query: Tensor,
        group: Group,
        layer: int,
        score_mod: ScoreModFunction | None,
        mask_mod: MaskMod | None,
        causal: bool,
        scale: float | None,
        aux: AuxRequest,
        options: tuple[tuple[str, int], ...],
    ) -> AttentionCall:
        places, pool = group.places, self.keys[layer]
        score = None
        if score_mod is not None:
            placed = _placed(score_mod, places.number, places.past)
            score = score_mod_of(*recorded(placed, lse_dtype(query), query.device))
            captured = () if score is None else score.captured
            if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in captured):
                raise ValueError(
                    "score_mod: expected captured tensors without gradient, since a cache keeps no "
                    "history; call under torch.no_grad()"
                )
        mask = group.causal if causal else None
        if mask_mod is not None:
            mask = placed_mask(
                places,
                mask_mod,
                causal=causal,
                heads=query.shape[1],
                kv_length=group.table.shape[1] * pool.shape[2],
            )
        return AttentionCall(
            self._rows(query, group),
            pool,
            self.values[layer],
            score,
            None if mask is None else MaskBlocks(mask.BLOCK_SIZE, *mask.block_tensors()),
            1.0 / math.sqrt(query.shape[-1]) if scale is None else scale,
            aux.lse,
            aux.max_scores,
            options,
            pages=KeyPages(group.table, group.lengths),
        )

    def _rows(self, query: Tensor, group: Group) -> Tensor:
        """Return a group's queries: [B, Hq, count, D]."""
        if query.ndim == 4:
            return query
        rows = query if group.rows is None else query[group.rows]
        sizes = (group.lengths.shape[0], group.places.count, *query.shape[1:])
        return rows.reshape(sizes).transpose(1, 2)

    def _joined(self, query: Tensor, parts: list[Tensor]) -> Tensor:
        """Return the groups' [B, Hq, count, ...] in query's form."""
        if query.ndim == 4:
            return parts[0]
        packed = [part.transpose(1, 2).flatten(0, 1) for part in parts]
        if self.groups[0].rows is None:
            return packed[0]
        joined = packed[0].new_empty((query.shape[0], *packed[0].shape[1:]))
        for group, part in zip(self.groups, packed, strict=True):
            assert group.rows is not None
            joined[group.rows] = part
        return joined

    def _checked_layer(self, of: str, layer: object) -> int:
        found = arguments.integer(of, "layer", layer, least=0, most=len(self.keys) - 1)
        # A compiled graph would be compiled again for each answer.
        if not torch.compiler.is_compiling() and self.ended():
            raise ValueError(
                "PagedStep: expected the cache's newest step, got one from before the cache was "
                "changed; make a new one with extend() or step()"
            )
        return found

    def _check_query(self, query: Tensor, layer: int) -> None:
        pool = self.keys[layer]
        check_form("query", query, pool, self.counts)
        heads, size = query.shape[1], query.shape[-1]
        if heads == 0 or heads % pool.shape[1]:
            raise ValueError(
                f"query: expected a multiple of the cache's {pool.shape[1]} heads, got {heads}"
            )
        if size != pool.shape[3]:
            raise ValueError(f"query: expected head size {pool.shape[3]}, got {size}")
        if torch.is_grad_enabled() and query.requires_grad:
            raise ValueError(
                "query: expected a tensor without gradient, since a cache keeps no history; call "
                "under torch.no_grad()"
            )

    @staticmethod
    def check_new(name: str, new: Tensor, pool: Tensor, counts: tuple[int, ...]) -> None:
        """Raise ValueError or TypeError unless keys or values can be written for a step."""
        check_form(name, new, pool, counts)
        got = (new.shape[1], new.shape[-1])
        if got != (pool.shape[1], pool.shape[3]):
            raise ValueError(
                f"{name}: expected {pool.shape[1]} heads of size {pool.shape[3]}, got "
                f"{got[0]} of size {got[1]}"
            )
        if torch.is_grad_enabled() and new.requires_grad:
            raise ValueError(
                f"{name}: expected a tensor without gradient, since a cache keeps no history; call "
                f"under torch.no_grad()"
            )


def _check_kinds(
    of: str,
    query: object,
    score_mod: object,
    mask_mod: object,
    causal: object,
    return_aux: object,
    implementation: object,
    scale: object,
) -> float | None:
    """Raise TypeError or ValueError where an argument is of another kind; return the scale."""
    arguments.tensor(of, "query", query, dims=(3, 4), dtypes=FLOATS)
    for name, function in (("score_mod", score_mod), ("mask_mod", mask_mod)):
        if function is not None:
            arguments.function(of, name, function)
    arguments.boolean(of, "causal", causal)
    check_flags(of, return_aux, implementation)
    return None if scale is None else arguments.number(of, "scale", scale)


def check_form(name: str, tensor: Tensor, pool: Tensor, counts: tuple[int, ...]) -> None:
    """Raise ValueError or TypeError unless a tensor holds the positions of a step."""
    arguments.tensor("PagedStep", name, tensor, dims=(3, 4))
    if tensor.dtype != pool.dtype or tensor.device != pool.device:
        raise TypeError(
            f"{name}: expected the cache's dtype and device, {pool.dtype} on {pool.device}, got "
            f"{tensor.dtype} on {tensor.device}"
        )
    if tensor.ndim == 4:
        alike = all(count == tensor.shape[2] for count in counts)
        if tensor.shape[0] == len(counts) and alike:
            return
    elif tensor.ndim == 3 and tensor.shape[0] == sum(counts):
        return
    same = f" or [{len(counts)}, H, {counts[0]}, D]" if len(set(counts)) == 1 else ""
    raise ValueError(
        f"{name}: expected [{sum(counts)}, H, D]{same} for sequences with {list(counts)} new "
        f"positions, got shape {list(tensor.shape)}"
    )


def _placed(score_mod: ScoreModFunction, number: Tensor, past: Tensor) -> ScoreModFunction:
    """Return a score_mod of a group's rows that calls one of positions."""

    def placed(score: Any, b: Any, h: Any, q_idx: Any, kv_idx: Any) -> Any:
        return score_mod(score, number[b], h, q_idx + past[b], kv_idx)

    return placed
