"""Kernels with one planted fault each, and the law that is meant for it.

Each is a Toy with one method replaced; the Toy itself is the healthy twin of all.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, replace
from itertools import count
from typing import Any, ClassVar, Final

import torch
from torch import Tensor

from torchyard import Platform, Verdict
from torchyard_attention.contract import (
    BACKWARD,
    FORWARD,
    AttentionCall,
    AttentionGradients,
    AttentionRequest,
    AttentionResult,
)

from .resource_mutants import KeepsItsResults, KeepsItsScratch, Waits
from .toy_attention import Claiming, Toy
from .verdict_mutants import (
    AcceptsNothing,
    AcceptsScoreMods,
    CompilesWhenAsked,
    DrawsANumber,
    LooksAtATensor,
    RefusesByRaising,
    RemembersWhatItWasAsked,
)


class MaskedKeyLeaks(Toy):
    """Reads the bits of a partial block one key short."""

    def visible(self, call: AttentionCall) -> Tensor:
        visible = super().visible(call).clone()
        if call.mask is not None and visible.numel():
            size = call.mask.block_size[1]
            some = visible[..., : size - 1].any(dim=-1)
            visible[..., min(size, visible.shape[-1]) - 1] |= some
        return visible


class NanTimesZero(Toy):
    """Gives hidden values a weight of 0, and multiplies."""

    def mix(self, weights: Tensor, value: Tensor, visible: Tensor) -> Tensor:
        return weights @ value


class NanIsLost(Toy):
    """Cleans the values that it is given."""

    def mix(self, weights: Tensor, value: Tensor, visible: Tensor) -> Tensor:
        return weights @ value.nan_to_num(0.0, 0.0, 0.0)


class NanInGradients(Toy):
    """Multiplies slopes of 0 with whatever a hidden key holds."""

    def backward(self, call: AttentionCall, *given: Any) -> AttentionGradients:
        found = super().backward(call, *given)
        touch = self.spread(call, call.key).sum(dim=(2, 3), keepdim=True) * 0.0
        return replace(found, query=found.query + touch.to(found.query.dtype))


class WrongHeadMap(Toy):
    """Query head h reads key head h % Hkv."""

    def spread(self, call: AttentionCall, tensor: Tensor) -> Tensor:
        group = call.query.shape[1] // max(1, tensor.shape[1])
        return tensor.double().repeat(1, group, 1, 1)


class LseInPowersOfTwo(Toy):
    """Returns the logarithm that its softmax uses."""

    def forward(self, call: AttentionCall) -> AttentionResult:
        result = super().forward(call)
        lse = result.lse
        return replace(result, lse=None if lse is None else lse / math.log(2.0))


class LastBlockDropped(Toy):
    """Rounds the number of keys down to whole tiles where there are several."""

    def visible(self, call: AttentionCall) -> Tensor:
        visible = super().visible(call).clone()
        keys = visible.shape[-1]
        if keys > 128:
            visible[..., keys // 128 * 128 :] = False
        return visible


class NarrowSums(Toy):
    """Adds up in bfloat16, one product after another."""

    def mix(self, weights: Tensor, value: Tensor, visible: Tensor) -> Tensor:
        exact = super().mix(weights, value, visible)
        total = torch.zeros_like(exact, dtype=torch.bfloat16)
        for key in range(value.shape[2]):
            step = weights[..., key : key + 1] * value[:, :, key : key + 1]
            total = total + step.to(torch.bfloat16)
        return torch.where(exact.isfinite(), total.double(), exact)


class SeesItsBatch(Claiming):
    """Rounds by how many batch entries there are."""

    def forward(self, call: AttentionCall) -> AttentionResult:
        result = super().forward(call)
        return replace(result, out=result.out * (1.0 + 2.0**-7 * call.query.shape[0]))


class FirstComeFirstAdded(Claiming):
    """Rounds by whose turn it is."""

    calls: ClassVar[Any] = count()

    def forward(self, call: AttentionCall) -> AttentionResult:
        result = super().forward(call)
        return replace(result, out=result.out * (1.0 + 2.0**-7 * (next(self.calls) % 2)))


class DividesByThreads(Claiming):
    """Rounds by how many threads there are."""

    def forward(self, call: AttentionCall) -> AttentionResult:
        result = super().forward(call)
        return replace(result, out=result.out * (1.0 + 2.0**-7 * torch.get_num_threads()))


class ReturnsAView(Toy):
    """Returns out as [B, S, H, V] in memory."""

    def forward(self, call: AttentionCall) -> AttentionResult:
        result = super().forward(call)
        return replace(result, out=result.out.transpose(1, 2).contiguous().transpose(1, 2))


class NarrowLse(Toy):
    """Returns the lse in the query's dtype."""

    def forward(self, call: AttentionCall) -> AttentionResult:
        result = super().forward(call)
        lse = result.lse
        return replace(result, lse=None if lse is None else lse.to(call.query.dtype))


class ScalesTheQuery(Toy):
    """Multiplies the scale into the query, in place."""

    def forward(self, call: AttentionCall) -> AttentionResult:
        result = super().forward(call)
        call.query.mul_(call.scale)
        return result


class KeepsTheKey(Toy):
    """Keeps the last call's key, to see whether the next is the same."""

    last: ClassVar[list[Tensor]] = []

    def forward(self, call: AttentionCall) -> AttentionResult:
        self.last[:] = [call.key.detach()]
        return super().forward(call)


class OneOutput(Toy):
    """Returns the same buffer for every call of a shape."""

    def __init__(self) -> None:
        self._outs: dict[torch.Size, Tensor] = {}

    def forward(self, call: AttentionCall) -> AttentionResult:
        result = super().forward(call)
        out = self._outs.setdefault(result.out.shape, result.out)
        return replace(result, out=out.copy_(result.out))


class FlushesDenormals(Toy):
    """Sets the processor's flag, and leaves it."""

    def forward(self, call: AttentionCall) -> AttentionResult:
        torch.set_flush_denormal(True)
        return super().forward(call)


class BadRowSpreads(Toy):
    """Subtracts one number from all rows, which is NaN where any of them is."""

    def scores(self, call: AttentionCall, visible: Tensor) -> Tensor:
        scores = super().scores(call, visible)
        return scores + 0.0 * call.query.double().sum(dim=(2, 3), keepdim=True)


class EmptyRowsAreMeans(Toy):
    """Gives rows that see nothing the mean of what they do not see."""

    def mix(self, weights: Tensor, value: Tensor, visible: Tensor) -> Tensor:
        mean = value.nan_to_num(0.0, 0.0, 0.0).mean(dim=2, keepdim=True)
        return torch.where(
            visible.any(dim=-1, keepdim=True), super().mix(weights, value, visible), mean
        )


class FreshMemory(Toy):
    """Adds to memory that it believes to be 0."""

    def forward(self, call: AttentionCall) -> AttentionResult:
        result = super().forward(call)
        return replace(result, out=torch.empty_like(result.out).mul_(0.0).add_(result.out))


class SharedScratch(Toy):
    """Has one place for the query of all calls."""

    place: ClassVar[list[Tensor]] = []

    def forward(self, call: AttentionCall) -> AttentionResult:
        self.place[:] = [call.query]
        time.sleep(0.001)
        return super().forward(replace(call, query=self.place[0]))


class PaddingReachesKeys(Toy):
    """Multiplies weights of 0 with whatever the gradient of a row that sees nothing holds."""

    def product(self, weights: Tensor, rows: Tensor, visible: Tensor) -> Tensor:
        return weights @ rows


class ScaleForgotten(Toy):
    """Leaves the scale out of the gradients of query and key."""

    def slopes(self, call: AttentionCall, slopes: Tensor) -> Tensor:
        return slopes


class GroupNotSummed(Toy):
    """Takes the gradient of a key head from the first query head that reads it."""

    def over_group(self, gradient: Tensor, kv_heads: int) -> Tensor:
        group = gradient.shape[1] // max(1, kv_heads)
        return gradient.unflatten(1, (kv_heads, group))[:, :, 0]


class CapturedAlways(Toy):
    """Returns a gradient of everything captured, asked for or not."""

    def supports_backward(self, request: AttentionRequest, platform: Platform) -> Verdict:
        return self.supports(request, platform)

    def backward(self, call: AttentionCall, *given: Any) -> AttentionGradients:
        found = super().backward(call, *given)
        captured = call.score_mod.captured if call.score_mod is not None else ()
        return replace(found, captured=tuple(torch.zeros_like(tensor) for tensor in captured))


class DifferencesDisagree(Toy):
    """Is off by a hundredth in float64 alone."""

    dtypes: ClassVar[tuple[str, ...]] = (*Toy.dtypes, "float64")

    def slopes(self, call: AttentionCall, slopes: Tensor) -> Tensor:
        factor = 1.01 if call.query.dtype == torch.float64 else 1.0
        return super().slopes(call, slopes) * factor


class FullMeansAllFull(Toy):
    """Believes that partial blocks have something hidden in every row."""

    def visible(self, call: AttentionCall) -> Tensor:
        visible = super().visible(call)
        if call.mask is None or call.mask.full_kv_num_blocks.any():
            return visible
        whole = visible.all(dim=-1, keepdim=True)
        return visible & ~whole


class BlocksAscend(Toy):
    """Stops at the first listed block that does not come after the one before."""

    def visible(self, call: AttentionCall) -> Tensor:
        visible = super().visible(call)
        mask = call.mask
        if mask is None or mask.kv_indices.shape[-1] < 2:
            return visible
        falls = (mask.kv_indices[..., 1] < mask.kv_indices[..., 0]) & (mask.kv_num_blocks > 1)
        return visible & ~falls.any()


class KeysCount(Toy):
    """Divides by how many keys there are, seen or not."""

    def weights(self, scores: Tensor, lse: Tensor) -> Tensor:
        blocks = -(-scores.shape[-1] // 256)
        return super().weights(scores, lse) * (1.0 - 0.1 * (blocks - 1))


class RowsTogether(Toy):
    """Has a way of its own for a single row, which is off by a tenth."""

    def weights(self, scores: Tensor, lse: Tensor) -> Tensor:
        return super().weights(scores, lse) * (1.0 if scores.shape[2] > 1 else 0.9)


class FirstEntryForAll(Toy):
    """Mixes a little of the batch's first entry into the others."""

    def mix(self, weights: Tensor, value: Tensor, visible: Tensor) -> Tensor:
        mixed = super().mix(weights, value, visible)
        return torch.cat([mixed[:1], mixed[1:] + 0.05 * mixed[:1]])


class Saturates(Toy):
    """Clamps the values to what a narrow accumulator holds."""

    def mix(self, weights: Tensor, value: Tensor, visible: Tensor) -> Tensor:
        return super().mix(weights, value.clamp(-6.0, 6.0), visible)


class PagesInOrder(Toy):
    """Takes the pages as they lie."""

    def gather(self, call: AttentionCall) -> AttentionCall:
        assert call.pages is not None
        table = torch.arange(call.pages.table.numel(), dtype=torch.int32)
        pages = replace(call.pages, table=table.view_as(call.pages.table))
        return super().gather(replace(call, pages=pages))


@dataclass(frozen=True, slots=True)
class Mutant:
    """A fault, and the law that is meant for it."""

    toy: type[Toy]
    law: str
    contract: str = FORWARD


MUTANTS: Final = (
    Mutant(MaskedKeyLeaks, "truth.attention-matches-reference"),
    Mutant(LastBlockDropped, "truth.attention-matches-reference"),
    Mutant(NarrowSums, "truth.attention-matches-reference"),
    Mutant(AcceptsScoreMods, "truth.attention-matches-reference"),
    Mutant(AcceptsNothing, "truth.attention-accepts-something"),
    Mutant(RefusesByRaising, "truth.attention-refuses-with-a-reason"),
    Mutant(RemembersWhatItWasAsked, "truth.attention-verdict-is-pure"),
    Mutant(DrawsANumber, "truth.attention-verdict-is-pure"),
    Mutant(CompilesWhenAsked, "truth.attention-verdict-is-cheap"),
    Mutant(LooksAtATensor, "truth.attention-verdict-of-fake-tensors"),
    Mutant(ReturnsAView, "truth.attention-stated-form"),
    Mutant(NarrowLse, "truth.attention-stated-form"),
    Mutant(ScalesTheQuery, "truth.attention-inputs-left-alone"),
    Mutant(KeepsTheKey, "truth.attention-inputs-left-alone"),
    Mutant(OneOutput, "truth.attention-results-stay"),
    Mutant(FlushesDenormals, "truth.attention-state-left-alone"),
    Mutant(KeepsItsScratch, "truth.attention-memory-does-not-grow"),
    Mutant(KeepsItsResults, "truth.attention-memory-does-not-grow", BACKWARD),
    Mutant(Waits, "truth.attention-cost-near-reference"),
    Mutant(ScaleForgotten, "truth.attention-gradients-match-reference", BACKWARD),
    Mutant(GroupNotSummed, "truth.attention-gradients-match-reference", BACKWARD),
    Mutant(CapturedAlways, "truth.attention-captured-on-demand", BACKWARD),
    Mutant(NanTimesZero, "numerics.attention-masked-nan-stays-out"),
    Mutant(NanIsLost, "numerics.attention-seen-nan-is-shown"),
    Mutant(NanInGradients, "numerics.attention-masked-nan-in-gradients", BACKWARD),
    Mutant(BadRowSpreads, "numerics.attention-bad-row-stays-alone"),
    Mutant(PaddingReachesKeys, "numerics.attention-bad-row-stays-alone", BACKWARD),
    Mutant(EmptyRowsAreMeans, "numerics.attention-empty-rows"),
    Mutant(FreshMemory, "numerics.attention-fresh-memory"),
    Mutant(SharedScratch, "numerics.attention-calls-at-once"),
    Mutant(DifferencesDisagree, "numerics.attention-gradcheck", BACKWARD),
    Mutant(FirstComeFirstAdded, "numerics.attention-deterministic"),
    Mutant(DividesByThreads, "numerics.attention-deterministic"),
    Mutant(FirstComeFirstAdded, "numerics.attention-deterministic-on-demand"),
    Mutant(SeesItsBatch, "numerics.attention-batch-invariant"),
    Mutant(WrongHeadMap, "numerics.attention-shared-heads"),
    Mutant(LseInPowersOfTwo, "numerics.attention-merged-parts-of-keys"),
    Mutant(FullMeansAllFull, "numerics.attention-full-blocks-as-partial"),
    Mutant(BlocksAscend, "numerics.attention-order-of-blocks"),
    Mutant(KeysCount, "numerics.attention-appended-hidden-keys"),
    Mutant(RowsTogether, "numerics.attention-rows-in-chunks"),
    Mutant(FirstEntryForAll, "numerics.attention-permuted-heads"),
    Mutant(Saturates, "numerics.attention-scaled-values"),
    Mutant(PagesInOrder, "numerics.attention-pages-anywhere"),
)
