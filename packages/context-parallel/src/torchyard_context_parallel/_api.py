"""``context_parallel_attention``: flex_attention over a sequence that is spread over ranks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple, NoReturn, Protocol

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh

from torchyard import arguments, note_use, uncompiled
from torchyard_attention import (
    BlockMask,
    DoubleBackwardError,
    as_block_mask,
    autocast_inputs,
    captured_tensors,
)
from torchyard_context_parallel._agreement import agree, device_of
from torchyard_context_parallel._methods.attempt import Attempt
from torchyard_context_parallel._methods.call import Call
from torchyard_context_parallel._methods.gathered import Gathered
from torchyard_context_parallel._methods.gradient_sums import CapturedSums
from torchyard_context_parallel._methods.heads import HeadShards, divide_heads
from torchyard_context_parallel._methods.ring import Ring
from torchyard_context_parallel._parts import check_parts, check_unchanged, cuts_blocks
from torchyard_context_parallel._place import Place
from torchyard_context_parallel._sharding import Sharding, merged
from torchyard_context_parallel._validation import (
    check_batch,
    check_kinds,
    check_length,
    check_mask,
    check_tensors,
    check_transform,
    described,
)

ScoreModFunction = Callable[[Any, Any, Any, Any, Any], Any]


class _Schedule(Protocol):
    def forward(
        self, call: Call, query: Tensor, key: Tensor, value: Tensor, attempt: Attempt
    ) -> tuple[Tensor, Tensor]: ...

    def backward(
        self,
        call: Call,
        inputs: tuple[Tensor, Tensor, Tensor],
        results: tuple[Tensor, Tensor],
        grads: tuple[Tensor, Tensor | None],
        captured: CapturedSums,
        attempt: Attempt,
    ) -> tuple[Tensor, Tensor, Tensor]: ...


class _Kind(NamedTuple):
    """A schedule, and along which dimensions of the mesh it sends keys and heads."""

    schedule: _Schedule
    keys: int | None
    heads: int | None


_OF: Final = "context_parallel_attention"
_SCHEDULES: Final = {
    "ring": _Kind(Ring(), keys=0, heads=None),
    "allgather": _Kind(Gathered(), keys=0, heads=None),
    "ulysses": _Kind(Gathered(), keys=None, heads=0),
    "hybrid": _Kind(Ring(), keys=0, heads=1),
}
# What ranks agree on, for messages.
ATTENTION: Final = "context_parallel_attention"
SCHEDULES: Final = tuple(_SCHEDULES)


@uncompiled("ranks exchange keys in the middle of it")
def context_parallel_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    mesh: DeviceMesh | dist.ProcessGroup,
    score_mod: ScoreModFunction | None = None,
    block_mask: BlockMask | Any | None = None,
    schedule: str = "ring",
    scale: float | None = None,
    sharding: Sharding | None = None,
    key_sharding: Sharding | None = None,
    return_lse: bool = False,
) -> Any:
    """Compute attention where each rank holds some positions of the sequence.

    The result is that of ``torchyard_attention.flex_attention`` on the whole sequence, on each rank
    for its own queries. ``score_mod`` and ``block_mask`` speak of the whole sequence and of all
    heads, and every rank gives the same ones. Each part is computed by the implementation that the
    registry picks for it, over any torch.distributed backend.

    The gradients are those of the sum of the ranks' losses. Gradients of tensors that score_mod
    captures are summed over the mesh, so every rank has all of them: data-parallel averaging over
    the same ranks must leave those tensors out.

    Args:
        query: [B, Hq, length of this rank's queries, D].
        key: [B, Hkv, length of this rank's keys, D]; Hkv divides Hq.
        value: [B, Hkv, length of this rank's keys, V].
        mesh: who holds the sequence: a mesh of one dimension (two for "hybrid") or a group.
        score_mod: ``(score, b, h, q_idx, kv_idx) -> score``.
        block_mask: of the whole sequence; where ranges of the sharding cut its blocks, it needs its
            mask_mod, and masks of parts are evaluated once and kept.
        schedule: "ring": keys travel, one rank's at a time. "allgather": keys are all gathered
            first. "ulysses": heads are divided instead of positions while attention is computed.
            "hybrid": heads along the mesh's second dimension, keys around its first.
        scale: multiplies the raw scores; None: 1 / sqrt(D).
        sharding: who holds which positions, by the ranks' order in the mesh. None: each rank holds
            one range, in the ranks' order; lengths are then asked of the ranks.
        key_sharding: likewise of keys, where they are another sequence; None: as the queries.
        return_lse: whether to return (out, lse).

    Returns:
        out [B, Hq, length, V] in query's dtype; or (out, lse), lse [B, Hq, length], natural
        logarithm, float32 (float64 for float64 inputs). Both are differentiable once.

    Raises:
        ValueError, TypeError: an argument does not fit; names it. Where that is so on one rank, all
            ranks raise the same error, which names the rank.
        torchyard_collectives.CallMismatchError: ranks give different arguments; names them.
        torchyard.TransformError: the call is in a transform of torch.func or in forward mode, or
            a batch of gradients (is_grads_batched) is asked for.
        torchyard.UnsupportedError: no implementation supports a part of the call.
    """
    place = Place.of(mesh)
    refusal: Exception | None = None
    fields: dict[str, object] = {}
    mask: BlockMask | None = None
    captured: tuple[Tensor, ...] = ()
    try:
        check_transform(query, key, value)
        check_kinds(query, key, value, score_mod, scale)
        for name, given in (("sharding", sharding), ("key_sharding", key_sharding)):
            if given is not None:
                arguments.instance(_OF, name, given, Sharding)
        return_lse = arguments.boolean(_OF, "return_lse", return_lse)
        arguments.text(_OF, "schedule", schedule)
        kind = _parse_schedule(schedule, place)
        note_use("context_parallel.attention", query.device.type)
        query, key, value = autocast_inputs(query, key, value)
        check_tensors(query, key, value)
        for name, tensor, held in (("query", query, sharding), ("key", key, key_sharding)):
            check_length(name, tensor, held or sharding, place)
        mask = as_block_mask(block_mask)
        check_unchanged(mask)
        captured = captured_tensors(score_mod, query)
        fields = described(
            query, key, value, schedule, score_mod, captured, mask, scale, sharding, key_sharding
        )
    except Exception as error:
        refusal = error
    lengths = [0, 0] if refusal else [query.shape[2], key.shape[2]]
    told = agree(
        place,
        ATTENTION,
        fields,
        numbers=lengths,
        refusal=refusal,
        device=device_of(query),
    )
    # From here on every rank knows the same, and so finds the same.
    queries = sharding or Sharding.of_lengths([row[0] for row in told])
    keys = key_sharding or (queries if sharding else Sharding.of_lengths([row[1] for row in told]))
    check_mask(mask, query, queries, keys)
    call = _call(kind, place, query, key, queries, keys, score_mod, mask, scale)
    check_parts(mask, call.queries, call.keys)
    # The parts keep the dtypes that the whole was cast to, backwards too.
    with torch.autocast(query.device.type, enabled=False):
        out, lse = _Attention.apply(  # type: ignore[no-untyped-call]
            kind.schedule, call, place, captured, query, key, value, *captured
        )
    return (out, lse) if return_lse else out


def _parse_schedule(schedule: str, place: Place) -> _Kind:
    if schedule not in _SCHEDULES:
        raise ValueError(f"schedule: expected one of {', '.join(_SCHEDULES)}, got {schedule!r}")
    kind = _SCHEDULES[schedule]
    place.check_dimensions(1 if kind.heads is None or kind.keys is None else 2)
    return kind


class _Attention(torch.autograd.Function):
    """Heads inside, the schedule, heads outside; and backwards with gradients."""

    @staticmethod
    def forward(
        ctx: Any,
        schedule: _Schedule,
        call: Call,
        place: Place,
        captured: tuple[Tensor, ...],
        query: Tensor,
        key: Tensor,
        value: Tensor,
        *_: Tensor,
    ) -> tuple[Tensor, Tensor]:
        inputs = (
            call.query_heads.inside(query),
            call.key_heads.inside(key),
            call.key_heads.inside(value),
        )
        attempt = Attempt()
        results = schedule.forward(call, *inputs, attempt)
        _compare(attempt, call, place, query)
        # Those that are captured are saved so that torch notices a change in place.
        ctx.save_for_backward(*inputs, *results, *captured)
        ctx.set_materialize_grads(False)
        ctx.heads = (query.shape[1], key.shape[1])
        ctx.given = (schedule, call, place, captured)
        out, lse = (call.query_heads.outside(item, query.shape[1]) for item in results)
        return out, lse

    @staticmethod
    def backward(
        ctx: Any, grad_out: Tensor | None, grad_lse: Tensor | None
    ) -> tuple[Tensor | None, ...]:
        check_batch(grad_out, grad_lse)
        with torch.no_grad():
            found = _gradients(ctx, grad_out, grad_lse)
        if torch.is_grad_enabled():
            # So that gradients of these are refused, and not taken for zero.
            given = [*ctx.saved_tensors, *(g for g in (grad_out, grad_lse) if g is not None)]
            found = _Once.apply(len(found), *found, *given)  # type: ignore[no-untyped-call]
        return (*(None,) * 4, *found)


def _gradients(ctx: Any, grad_out: Tensor | None, grad_lse: Tensor | None) -> tuple[Tensor, ...]:
    query, key, value, out, lse = ctx.saved_tensors[:5]
    schedule, call, place, captured = ctx.given
    sums = CapturedSums(captured)
    grads = (
        torch.zeros_like(out) if grad_out is None else call.query_heads.inside(grad_out),
        None if grad_lse is None else call.query_heads.inside(grad_lse),
    )
    attempt = Attempt()
    found = schedule.backward(call, (query, key, value), (out, lse), grads, sums, attempt)
    _compare(attempt, call, place, query)
    count, kv_count = ctx.heads
    return (
        call.query_heads.outside(found[0], count),
        call.key_heads.outside(found[1], kv_count, add=True),
        call.key_heads.outside(found[2], kv_count, add=True),
        *sums.over(place.groups),
    )


def _compare(attempt: Attempt, call: Call, place: Place, query: Tensor) -> None:
    """Raise on every rank what a rank's own computation raised."""
    if call.runs_user_code:
        agree(place, ATTENTION, {}, refusal=attempt.error, device=device_of(query))
    elif attempt.error is not None:
        raise attempt.error


class _Once(torch.autograd.Function):
    """Gradients that cannot be differentiated again."""

    @staticmethod
    def forward(ctx: Any, count: int, *tensors: Tensor) -> tuple[Tensor, ...]:
        return tuple(tensor.view_as(tensor) for tensor in tensors[:count])

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> NoReturn:
        raise DoubleBackwardError(
            "context_parallel_attention: gradients of its gradients were asked for "
            "(create_graph=True), which it does not compute; compute the attention in one process "
            "where they are needed"
        )


def _call(
    kind: _Kind,
    place: Place,
    query: Tensor,
    key: Tensor,
    queries: Sharding,
    keys: Sharding,
    score_mod: ScoreModFunction | None,
    mask: BlockMask | None,
    scale: float | None,
) -> Call:
    ring = None if kind.keys is None else place.groups[kind.keys]
    inner = None if kind.heads is None else place.groups[kind.heads]
    each = 1 if inner is None else inner.size()
    first = 0 if ring is None else ring.rank() * each
    heads, kv_heads = divide_heads(query.shape[1], key.shape[1], each)
    around = [slice(start, start + each) for start in range(0, place.ranks, each)]
    own = slice(first, first + each)
    return Call(
        ring=ring,
        queries=tuple(merged(queries.parts[ranks]) for ranks in around),
        keys=tuple(merged(keys.parts[ranks]) for ranks in around),
        query_heads=HeadShards(inner, queries.parts[own], heads),
        key_heads=HeadShards(inner, keys.parts[own], kv_heads),
        heads=heads[0 if inner is None else inner.rank()],
        score_mod=score_mod,
        block_mask=mask,
        scale=scale,
        runs_user_code=score_mod is not None or cuts_blocks(mask, queries.parts, keys.parts),
    )
