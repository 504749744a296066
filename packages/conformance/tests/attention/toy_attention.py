"""A kernel that keeps every law, written in parts that a mutant replaces one of."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, ClassVar

import torch
from torch import Tensor

from torchyard import Claim, Implementation, Platform, ReasonCode, Verdict
from torchyard_attention.contract import (
    BACKWARD,
    FORWARD,
    AttentionCall,
    AttentionGradients,
    AttentionRequest,
    AttentionResult,
)
from torchyard_attention.pages import gathered
from torchyard_attention.visibility import dense_visibility


class Toy:
    """Dense attention in float64. Sums are so much wider than results that their order is unseen.

    A subclass plants one fault by overriding one method.
    """

    name: ClassVar[str] = "toy.kernel"
    claims: ClassVar[frozenset[str]] = frozenset()
    # Wide enough that no order of sums reaches the bits of a float32 result.
    dtypes: ClassVar[tuple[str, ...]] = ("float32", "bfloat16", "float16")
    scores_supported: ClassVar[bool] = True
    reads_pages: ClassVar[bool] = True

    def supports(self, request: AttentionRequest, platform: Platform) -> Verdict:
        """Accept everything but dtypes that it does not know."""
        if request.dtype not in self.dtypes:
            return Verdict.no(ReasonCode.DTYPE, f"computes {self.dtypes}, got {request.dtype}")
        if request.score != "none" and not self.scores_supported:
            return Verdict.no(ReasonCode.SCORE_MOD, f"no scores, got {request.score}")
        return Verdict.yes()

    def visible(self, call: AttentionCall) -> Tensor:
        """Return bool [Bm, Hm, Sq, Sk]."""
        rows, keys = call.query.shape[2], call.key.shape[2]
        if call.mask is None:
            return torch.ones((1, 1, rows, keys), dtype=torch.bool)
        return dense_visibility(call.mask, rows, keys)

    def spread(self, call: AttentionCall, tensor: Tensor) -> Tensor:
        """Return key or value for each query head, in float64."""
        group = call.query.shape[1] // max(1, tensor.shape[1])
        return tensor.double().repeat_interleave(group, dim=1)

    def gather(self, call: AttentionCall) -> AttentionCall:
        """Return the call without pages."""
        return gathered(call)

    def scores(self, call: AttentionCall, visible: Tensor) -> Tensor:
        """Return the scores, -inf where hidden."""
        raw = (call.query.double() @ self.spread(call, call.key).nan_to_num(0, 0, 0).mT) * (
            call.scale
        )
        seen = self._not_finite(call.query, call.key, call)
        raw = torch.where(seen, math.nan, raw)
        if call.score_mod is not None:
            index = (torch.arange(size) for size in raw.shape)
            captured = (t.double() if t.is_floating_point() else t for t in call.score_mod.captured)
            raw = call.score_mod.apply(raw.where(visible, 0.0), *index, *captured)
        return torch.where(visible, raw, -math.inf)

    def _not_finite(self, query: Tensor, key: Tensor, call: AttentionCall) -> Tensor:
        bad = ~self.spread(call, key).isfinite().all(dim=-1)
        return bad.unsqueeze(2).expand(*query.shape[:3], key.shape[2])

    def weights(self, scores: Tensor, lse: Tensor) -> Tensor:
        """Return the softmax, 0 in rows that see nothing."""
        empty = (lse == -math.inf).unsqueeze(-1)
        return torch.where(empty, 0.0, (scores - lse.unsqueeze(-1)).exp())

    def lse(self, scores: Tensor) -> Tensor:
        """Return the log-sum-exp."""
        return scores.logsumexp(dim=-1)

    def mix(self, weights: Tensor, value: Tensor, visible: Tensor) -> Tensor:
        """Return the weighted sum of the values, in which hidden ones take no part."""
        if value.isfinite().all():
            return weights @ value
        clean = weights @ value.nan_to_num(0, 0, 0)
        bad = (~value.isfinite()).double()
        return torch.where(visible.double() @ bad > 0, math.nan, clean)

    def forward(self, call: AttentionCall) -> AttentionResult:
        """Compute attention/1."""
        if call.pages is not None:
            call = self.gather(call)
        visible = self.visible(call)
        scores = self.scores(call, visible)
        if scores.shape[-1] == 0:
            lse = top = scores.new_full(scores.shape[:-1], -math.inf)
        else:
            lse, top = self.lse(scores), scores.amax(dim=-1)
        out = self.mix(self.weights(scores, lse), self.spread(call, call.value), visible)
        wide = torch.promote_types(call.query.dtype, torch.float32)
        return AttentionResult(
            out.to(call.query.dtype).contiguous(),
            lse.to(wide) if call.lse else None,
            top.to(wide) if call.max_scores else None,
        )

    def backward(
        self,
        call: AttentionCall,
        out: Tensor,
        lse: Tensor,
        grad_out: Tensor,
        grad_lse: Tensor | None,
    ) -> AttentionGradients:
        """Compute attention_backward/1 for unmodified scores."""
        visible = self.visible(call)
        scores = self.scores(call, visible)
        weights = self.weights(scores, self.lse(scores) if scores.shape[-1] else lse.double())
        grad, value = grad_out.double(), self.spread(call, call.value).nan_to_num(0, 0, 0)
        through = grad @ value.mT
        mixed = (weights * through).sum(dim=-1)
        if grad_lse is not None:
            mixed = mixed - grad_lse.double()
        seen = visible & (lse != -math.inf).unsqueeze(-1)
        weights = weights.where(seen, 0.0)
        slopes = self.slopes(call, weights * (through - mixed.unsqueeze(-1))).where(seen, 0.0)
        key = self.spread(call, call.key).nan_to_num(0, 0, 0)
        heads = call.key.shape[1]
        return AttentionGradients(
            (slopes @ key).to(call.query.dtype),
            self.over_group(self.product(slopes.mT, call.query.double(), seen.mT), heads).to(
                call.key.dtype
            ),
            self.over_group(self.product(weights.mT, grad, seen.mT), heads).to(call.value.dtype),
        )

    def product(self, weights: Tensor, rows: Tensor, visible: Tensor) -> Tensor:
        """Return weights @ rows, in which a row takes no part for a key that it does not see."""
        bad = visible.double() @ (~rows.isfinite()).double() > 0
        return torch.where(bad, math.nan, weights @ rows.nan_to_num(0, 0, 0))

    def slopes(self, call: AttentionCall, slopes: Tensor) -> Tensor:
        """Return the gradients of the products of query and key."""
        return slopes * call.scale

    def over_group(self, gradient: Tensor, kv_heads: int) -> Tensor:
        """Sum over the query heads that share a key head."""
        group = gradient.shape[1] // max(1, kv_heads)
        return gradient.unflatten(1, (kv_heads, group)).sum(dim=2)

    def implementation(self, contract: str) -> Implementation:
        """Return what a plugin would offer."""
        loads: dict[str, Callable[[], Callable[..., Any]]] = {
            FORWARD: lambda: _Forward(self),
            BACKWARD: lambda: self.backward,
        }
        return Implementation(
            contract,
            self.name,
            self.supports if contract == FORWARD else self.supports_backward,
            loads[contract],
            claims=self.claims,
        )

    def supports_backward(self, request: AttentionRequest, platform: Platform) -> Verdict:
        """Accept what :meth:`backward` computes."""
        verdict = self.supports(request, platform)
        if verdict.supported and request.score != "none":
            return Verdict.no(ReasonCode.SCORE_MOD, f"no gradients of scores, got {request.score}")
        return verdict


class _Forward:
    """A callable that says that it reads pages."""

    def __init__(self, toy: Toy) -> None:
        self._toy = toy
        self.reads_pages = toy.reads_pages

    def __call__(self, call: AttentionCall) -> AttentionResult:
        return self._toy.forward(call)


class Claiming(Toy):
    """The same, claiming everything that can be claimed."""

    claims: ClassVar[frozenset[str]] = frozenset(Claim)
