"""How far from the float64 reference a result may be.

The ruler is the error of a naive computation of the same call: dense, every product and sum rounded
to the inputs' dtype, as a few lines of eager torch do it. An implementation may be twice as far off
as that, in the greatest error and in the root of the mean square: both results are one draw of the
same roundings in another order, and the greatest of many such errors rarely differs by more. The
root mean square shows a bias that the greatest error would hide.

Where the naive computation happens to be exact (one key, say) a floor takes over: the rounding of
the stored result, and the first-order bound of a sum's rounding errors, eps times the sum of the
absolute values of its terms, with the error that a score's own rounding makes in its weight.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final

import torch
from torch import Tensor

from torchyard_attention.contract import AttentionCall, AttentionGradients, AttentionResult
from torchyard_attention.dropout import dropout_factors
from torchyard_attention.reference import reference_backward, reference_forward
from torchyard_attention.visibility import dense_visibility

__all__ = ["FACTOR", "Error", "GradientRuler", "Ruler", "report"]

FACTOR: Final = 2.0
# Roundings on the way of one term: product, sum, exponential, division.
_STEPS: Final = 4.0


@dataclass(frozen=True, slots=True)
class Error:
    """The error of one output against the reference, and what it may be.

    Attributes:
        name: the output, such as ``out`` or ``grad_key``.
        greatest, rms: greatest absolute error and root of the mean square.
        greatest_bound, rms_bound: what they may be.
        same_kind: whether NaN and infinities are where the reference has them.
    """

    name: str
    greatest: float
    rms: float
    greatest_bound: float
    rms_bound: float
    same_kind: bool

    @property
    def ratio(self) -> float:
        """The worse of both errors over its bound; up to 1 passes."""
        if not self.same_kind:
            return math.inf
        pairs = ((self.greatest, self.greatest_bound), (self.rms, self.rms_bound))
        # A bound of NaN, as of inputs with NaN, says nothing and lets nothing pass.
        if any(math.isnan(bound) for _, bound in pairs):
            return math.inf
        # A bound of zero, as of rows without keys, lets no error pass.
        return max(
            0.0 if error == 0 else error / bound if bound else math.inf for error, bound in pairs
        )


class Ruler:
    """The reference's and the naive computation's outputs for one call.

    Args:
        call: the call; where its inputs hold NaN on purpose, the same call without them.
    """

    def __init__(self, call: AttentionCall) -> None:
        self._exact = reference_forward(_double(call))
        self._naive = _naive_forward(call)
        self._size = _magnitudes(call)

    def compare(self, result: AttentionResult) -> list[Error]:
        """Return the errors of what an implementation returned."""
        exact, naive, size = self._exact, self._naive, self._size
        errors = [_error("out", result.out, exact.out, naive.out, size["out"], size["eps"])]
        for name in ("lse", "max_scores"):
            got, wanted, rough = (getattr(item, name) for item in (result, exact, naive))
            if (got is None) != (wanted is None):
                raise ValueError(
                    f"{name}: asked for: {wanted is not None}, returned: {got is not None}"
                )
            if wanted is not None:
                errors.append(_error(name, got, wanted, rough, size["score"], size["eps"]))
        return errors


class GradientRuler:
    """The reference's and the naive computation's gradients for one call.

    Args:
        call: the call.
        grad_out, grad_lse: what the backward is given.
    """

    def __init__(
        self, call: AttentionCall, grad_out: Tensor, grad_lse: Tensor | None = None
    ) -> None:
        wide = _double(call, lse=True)
        forward = reference_forward(wide)
        assert forward.lse is not None
        wide_lse = None if grad_lse is None else grad_lse.double()
        self._exact = reference_backward(
            wide, forward.out, forward.lse, grad_out.double(), wide_lse
        )
        self._naive = _naive_backward(call, grad_out, grad_lse)
        self._size = _magnitudes(call, grad_out, grad_lse)

    def compare(self, gradients: AttentionGradients) -> list[Error]:
        """Return the errors of what an implementation returned."""
        exact, naive, size = self._exact, self._naive, self._size
        triples = [
            (name, getattr(gradients, name), getattr(exact, name), getattr(naive, name), size[name])
            for name in ("query", "key", "value")
        ]
        captured = zip(gradients.captured, exact.captured, naive.captured, strict=True)
        for index, (got, wanted, rough) in enumerate(captured):
            if (got is None) != (wanted is None):
                raise ValueError(
                    f"captured[{index}]: asked for: {wanted is not None}, returned: "
                    f"{got is not None}"
                )
            if got is not None:
                triples.append((f"captured[{index}]", got, wanted, rough, size["captured"]))
        return [
            _error(f"grad_{name}", got, wanted, rough, magnitude, size["eps"])
            for name, got, wanted, rough, magnitude in triples
        ]


def report(errors: Iterable[Error]) -> str:
    """Return one line for each error that is beyond its bound; empty where all pass."""
    return "\n".join(
        f"{error.name}: {error.ratio:.2f} times the bound: greatest {error.greatest:.3e} of "
        f"{error.greatest_bound:.3e}, rms {error.rms:.3e} of {error.rms_bound:.3e}"
        + ("" if error.same_kind else "; NaN or infinities differ")
        for error in errors
        if error.ratio > 1.0
    )


def _error(
    name: str, got: Tensor, exact: Tensor, naive: Tensor, magnitude: float, eps: float
) -> Error:
    if got.shape != exact.shape:
        raise ValueError(f"{name}: expected shape {list(exact.shape)}, got {list(got.shape)}")
    if got.numel() == 0:
        return Error(name, 0.0, 0.0, 0.0, 0.0, True)
    wide, exact, naive = got.double(), exact.double(), naive.double()
    # A result may overflow its dtype where the rounded reference does.
    stored = exact.to(got.dtype).double()
    finite = stored.isfinite()
    kinds = [tensor.nan_to_num(math.nan, math.inf, -math.inf)[~finite] for tensor in (wide, stored)]
    same_kind = bool(wide.isfinite().eq(finite).all()) and torch.equal(
        kinds[0].nan_to_num(0.5), kinds[1].nan_to_num(0.5)
    )
    difference = torch.where(finite, wide - exact, 0.0)
    rough = torch.where(finite, naive - exact, 0.0).nan_to_num(0.0, 0.0, 0.0)
    largest = float(torch.where(finite, exact, 0.0).abs().max())
    floor = torch.finfo(got.dtype).eps * largest if got.is_floating_point() else 0.0
    floor += eps * magnitude
    return Error(
        name,
        float(difference.abs().max()),
        float(difference.square().mean().sqrt()),
        FACTOR * float(rough.abs().max()) + floor,
        FACTOR * float(rough.square().mean().sqrt()) + floor,
        same_kind,
    )


def _double(call: AttentionCall, *, lse: bool | None = None) -> AttentionCall:
    return replace(
        call,
        query=call.query.double(),
        key=call.key.double(),
        value=call.value.double(),
        lse=call.lse if lse is None else lse,
    )


def _visible(call: AttentionCall) -> Tensor:
    q_length, kv_length = call.query.shape[2], call.key.shape[2]
    if call.mask is None:
        return torch.ones((1, 1, q_length, kv_length), dtype=torch.bool, device=call.query.device)
    return dense_visibility(call.mask, q_length, kv_length)


def _expanded(call: AttentionCall, tensor: Tensor) -> Tensor:
    return tensor.repeat_interleave(call.query.shape[1] // tensor.shape[1], dim=1)


def _factors(call: AttentionCall, dtype: torch.dtype) -> Tensor:
    """Return what dropout multiplies weights by."""
    query = call.query
    if call.dropout is None:
        return query.new_ones((), dtype=dtype)
    batch, heads, q_length, _ = query.shape
    sizes = (batch, heads, q_length, call.key.shape[2])
    b, h, q, k = (torch.arange(size, device=query.device) for size in sizes)
    return dropout_factors(call.dropout, (b, h, q, k), heads, dtype)


def _modified(call: AttentionCall, raw: Tensor, captured: tuple[Tensor, ...]) -> Tensor:
    if call.score_mod is None:
        return raw
    index = (torch.arange(size, device=raw.device) for size in raw.shape)
    return call.score_mod.apply(raw, *index, *captured)


def _naive(
    call: AttentionCall, query: Tensor, key: Tensor, value: Tensor, captured: tuple[Tensor, ...]
) -> tuple[Tensor, Tensor, Tensor]:
    """Return out in the inputs' dtype, lse and max_scores as wide as the contract has them."""
    dtype = query.dtype
    wide = torch.promote_types(dtype, torch.float32)
    visible = _visible(call)
    raw = (query @ _expanded(call, key).mT) * call.scale
    scores = _modified(call, raw.to(wide), captured).to(dtype)
    scores = scores.masked_fill(~visible, -torch.inf)
    if scores.shape[-1] == 0:
        empty = scores.new_ones(scores.shape[:-1], dtype=torch.bool)
        top = torch.full_like(empty, -torch.inf, dtype=wide)
    else:
        top = scores.detach().amax(dim=-1).to(wide)
        empty = top == -torch.inf
    shifted = scores.masked_fill(empty.unsqueeze(-1), 0.0)
    weights = shifted.softmax(dim=-1).masked_fill(empty.unsqueeze(-1), 0.0)
    weights = weights * _factors(call, dtype)
    out = weights @ _expanded(call, value)
    lse = shifted.to(wide).logsumexp(dim=-1).masked_fill(empty, -torch.inf)
    return out, lse, top


def _naive_forward(call: AttentionCall) -> AttentionResult:
    captured = call.score_mod.captured if call.score_mod is not None else ()
    out, _, _ = _naive(call, call.query, call.key, call.value, captured)
    # Scores and sums are float32 whatever the inputs; weights may be as narrow as the inputs.
    wide = torch.promote_types(call.query.dtype, torch.float32)
    raw = (call.query.to(wide) @ _expanded(call, call.key).to(wide).mT) * call.scale
    scores = _modified(call, raw, captured).masked_fill(~_visible(call), -torch.inf)
    if scores.shape[-1] == 0:
        top = scores.new_full(scores.shape[:-1], -torch.inf)
    else:
        top = scores.amax(dim=-1)
    shift = top.masked_fill(top == -torch.inf, 0.0)
    weights = (scores - shift.unsqueeze(-1)).exp().to(call.query.dtype).to(wide)
    lse = shift + weights.sum(dim=-1).log()
    return AttentionResult(out, lse if call.lse else None, top if call.max_scores else None)


def _naive_backward(
    call: AttentionCall, grad_out: Tensor, grad_lse: Tensor | None
) -> AttentionGradients:
    with torch.enable_grad():
        leaves = [t.detach().requires_grad_() for t in (call.query, call.key, call.value)]
        originals = call.score_mod.captured if call.score_mod is not None else ()
        flags = call.captured_grad or (False,) * len(originals)
        captured = tuple(
            t.detach().requires_grad_(wanted) for t, wanted in zip(originals, flags, strict=True)
        )
        out, lse, _ = _naive(call, leaves[0], leaves[1], leaves[2], captured)
        outputs, cotangents = [out], [grad_out]
        if grad_lse is not None and lse.requires_grad:
            outputs.append(lse.masked_fill(lse == -torch.inf, 0.0))
            cotangents.append(grad_lse.to(lse.dtype))
        wanted = [*leaves, *(t for t in captured if t.requires_grad)]
        found = torch.autograd.grad(
            outputs, wanted, cotangents, allow_unused=True, materialize_grads=True
        )
    rest = iter(found[3:])
    return AttentionGradients(
        found[0],
        found[1],
        found[2],
        tuple(next(rest) if t.requires_grad else None for t in captured),
    )


@torch.no_grad()
def _magnitudes(
    call: AttentionCall, grad_out: Tensor | None = None, grad_lse: Tensor | None = None
) -> dict[str, float]:
    """Return, for each output, the greatest sum of absolute values of its terms.

    ``eps`` is what it is to be multiplied with: the roundings along the way, and the score's own,
    whose absolute error is the relative error of its weight.
    """
    wide = _double(call, lse=True)
    query, key, value = wide.query, _expanded(call, wide.key), _expanded(call, wide.value)
    captured = call.score_mod.captured if call.score_mod is not None else ()
    spread = query.abs() @ key.abs().mT * abs(call.scale)
    scores = _modified(call, query @ key.mT * call.scale, captured)
    scores = scores.where(_visible(call), -torch.inf)
    lse = reference_forward(wide).lse
    assert lse is not None
    weights = (scores - lse.masked_fill(lse == -torch.inf, torch.inf).unsqueeze(-1)).exp()
    factors = _factors(call, torch.float64)
    kept = weights * factors
    score = _greatest(spread) + _greatest(scores.nan_to_num(0.0, 0.0, 0.0)) + 1.0
    compute = torch.promote_types(call.query.dtype, torch.float32)
    sizes = {"score": score, "out": _greatest(kept @ value.abs())}
    sizes["eps"] = torch.finfo(compute).eps * (_STEPS + score)
    if grad_out is not None:
        slope = grad_out.double().abs()
        through = slope @ value.abs().mT * factors
        mixed = (slope * (kept @ value.abs())).sum(dim=-1, keepdim=True)
        if grad_lse is not None:
            mixed = mixed + grad_lse.double().abs().unsqueeze(-1)
        raw = weights * (through + mixed)
        group = call.query.shape[1] // max(1, call.key.shape[1])
        sizes["query"] = _greatest(raw @ key.abs()) * abs(call.scale)
        sizes["key"] = _greatest(raw.mT @ query.abs()) * abs(call.scale) * group
        sizes["value"] = _greatest(kept.mT @ slope) * group
        # A captured tensor may be wider than out, whose rounding reaches its gradient by way of
        # grad_out . out, independently in each row.
        rounded = torch.finfo(call.query.dtype).eps * float(mixed.square().sum().sqrt())
        sizes["captured"] = (float(raw.sum()) + rounded / sizes["eps"]) * max(1.0, score)
    return sizes


def _greatest(tensor: Tensor) -> float:
    return float(tensor.abs().max()) if tensor.numel() else 0.0
