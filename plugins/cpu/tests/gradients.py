"""Run a native backward kernel on tensors, and judge what it returns."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from torchyard_attention.contract import MaskBlocks
from torchyard_cpu import _native
from torchyard_cpu._tuning.tunables import frozen
from torchyard_cpu.attention._forward import call_places, tensor_place

from .errors import largest, ratio, rms

NAMES = ("query", "key", "value")


@dataclass(frozen=True)
class Problem:
    """The inputs of a backward: the forward's, its outputs in float64, and their gradients."""

    query: Tensor
    key: Tensor
    value: Tensor
    grad_out: Tensor
    grad_lse: Tensor | None = None
    visible: Tensor | None = None
    mask: MaskBlocks | None = None
    scale: float | None = None

    @property
    def factor(self) -> float:
        return self.query.shape[-1] ** -0.5 if self.scale is None else self.scale

    def scores(self, compute: torch.dtype) -> Tensor:
        """Return the visible scores, the others -inf."""
        key = self.key.to(compute).repeat_interleave(self.query.shape[1] // self.key.shape[1], 1)
        # Not 0 * NaN: what is hidden takes no part.
        scores = self.query.to(compute) @ key.mT * self.factor
        return scores if self.visible is None else scores.masked_fill(~self.visible, -math.inf)


@dataclass(frozen=True)
class Forward:
    """What the forward returned: out in the inputs' dtype, lse in float32."""

    out: Tensor
    lse: Tensor


def forward(problem: Problem) -> Forward:
    """Compute the forward in float64; its roundings are the best that a backward can be given."""
    scores = problem.scores(torch.float64)
    lse = scores.logsumexp(-1)
    weights = (scores - lse.masked_fill(lse.isneginf(), 0.0)[..., None]).exp()
    group = problem.query.shape[1] // problem.key.shape[1]
    out = weights @ problem.value.double().repeat_interleave(group, 1)
    return Forward(out.to(problem.query.dtype), lse.float())


def run(
    kernel: str,
    problem: Problem,
    result: Forward | None = None,
    *,
    threads: int = 1,
    row_padding: int = 0,
) -> tuple[Tensor, Tensor, Tensor]:
    """Run a kernel into gradients full of NaN, with working memory full of NaN.

    Args:
        row_padding: elements between the rows of the gradients; checked to stay as they were.
    """
    result = forward(problem) if result is None else result
    query, key, value = problem.query, problem.key, problem.value
    padded = [
        torch.full((*t.shape[:3], t.shape[3] + row_padding), math.nan, dtype=t.dtype)
        for t in (query, key, value)
    ]
    grads = tuple(p[..., : p.shape[3] - row_padding] for p in padded)
    _native.attention_backward(
        kernel,
        *call_places(
            query, key, value, result.out, result.lse, problem.factor, problem.mask, frozen("*")
        ),
        tensor_place(problem.grad_out, "grad_out"),
        0 if problem.grad_lse is None else problem.grad_lse.data_ptr(),
        *(tensor_place(grad, "grad") for grad in grads),
        None,  # no score program
        None,
        threads,
        True,
    )
    for p, grad in zip(padded, grads, strict=True):
        assert p[..., grad.shape[3] :].isnan().all(), "wrote between the rows of a gradient"
    return grads


def exact(problem: Problem) -> tuple[Tensor, Tensor, Tensor]:
    """Compute the gradients in float64, by the formulas of the contract."""
    return _formulas(problem, forward(problem), torch.float64)[0]


def check(
    kernel: str,
    problem: Problem,
    worst: dict[str, list[float]],
    *,
    threads: int = 1,
    row_padding: int = 0,
) -> None:
    """Hold a kernel against float64.

    Its errors may be those of the naive computation in the inputs' dtype: products and sums in
    float32, weights, slopes and gradients rounded to the dtype, from the same out and lse. That may
    be lucky, so a floor is added, relative to each gradient's sum of magnitudes: one rounding to
    the dtype, a few of float32's, and what a score's sum and the lse bring to an exponent.
    """
    result = forward(problem)
    got = run(kernel, problem, result, threads=threads, row_padding=row_padding)
    true, magnitudes = _formulas(problem, result, torch.float64)
    naive, _ = _formulas(problem, result, torch.float32)
    eps = torch.finfo(torch.float32).eps
    half = torch.finfo(problem.query.dtype).eps / 2
    absolute = Problem(problem.query.abs(), problem.key.abs(), problem.value, problem.grad_out)
    score = largest(absolute.scores(torch.float64)) / absolute.factor * abs(problem.factor)
    floor = half + (4 + score) * eps
    ratios = []
    for name, g, t, n, m in zip(NAMES, got, true, naive, magnitudes, strict=True):
        assert g.isfinite().all(), f"grad_{name} is not finite"
        error, allowed = g.double() - t, n.double() - t
        ratios.append(ratio(largest(error), largest(allowed) + floor * largest(m)))
        ratios.append(ratio(rms(error), rms(allowed) + floor * rms(m)))
    known = worst.setdefault(kernel, [0.0] * 7)
    known[:] = [max(a, b) for a, b in zip(known[:6], ratios, strict=True)] + [known[6] + 1]
    assert max(ratios) <= 1.0, f"error / bound, maximum and RMS of {NAMES}: {ratios}"


def _formulas(
    problem: Problem, result: Forward, compute: torch.dtype
) -> tuple[tuple[Tensor, Tensor, Tensor], tuple[Tensor, Tensor, Tensor]]:
    """Return the gradients, and the same sums over magnitudes."""
    dtype = problem.query.dtype
    narrow = compute is torch.float32
    heads, group = problem.key.shape[1], problem.query.shape[1] // problem.key.shape[1]
    query = problem.query.to(compute)
    key, value = (t.to(compute).repeat_interleave(group, 1) for t in (problem.key, problem.value))
    grad = problem.grad_out.to(compute)
    scores = problem.scores(compute)
    empty = result.lse.isneginf()
    # float64: the true lse and out, so that the reference has none of their roundings.
    lse = result.lse if narrow else scores.logsumexp(-1)
    weights = (scores - lse.masked_fill(empty, 0.0)[..., None]).exp()
    weights = weights.masked_fill(empty[..., None], 0.0)
    out = result.out.to(compute) if narrow else weights @ value
    delta = (grad * out).sum(-1)
    if problem.grad_lse is not None:
        delta = delta - problem.grad_lse.to(compute)
    product = grad @ value.mT
    slopes = weights * (product - delta[..., None])
    spread = weights * ((grad.abs() @ value.abs().mT) + delta.abs()[..., None])

    def over_group(t: Tensor) -> Tensor:
        return t.unflatten(1, (heads, group)).sum(2)

    w, s = (t.to(dtype).to(compute) if narrow else t for t in (weights, slopes))
    grads = (
        s @ key * problem.factor,
        over_group(s.mT @ query) * problem.factor,
        over_group(w.mT @ grad),
    )
    magnitudes = (
        spread @ key.abs() * abs(problem.factor),
        over_group(spread.mT @ query.abs()) * abs(problem.factor),
        over_group(weights.mT @ grad.abs()),
    )
    if narrow:
        grads = (grads[0].to(dtype), grads[1].to(dtype), grads[2].to(dtype))
    return grads, magnitudes
