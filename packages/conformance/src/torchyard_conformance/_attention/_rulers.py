"""The references and error bounds of a case, computed once for all implementations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import torch
from torch import Tensor

from torchyard_attention.cases import Case
from torchyard_attention.contract import AttentionGradients, AttentionResult
from torchyard_attention.reference import reference_forward
from torchyard_attention.tolerance import Error, GradientRuler, Ruler, report
from torchyard_conformance._outcome import Violated

__all__ = [
    "Cotangents",
    "compare",
    "compare_gradients",
    "cotangents",
    "exact",
    "key_of",
    "on_cpu",
    "worst",
]

_KEPT = 512


class _Key(str):
    """A case's text, with the case itself for who makes the ruler."""

    case: Case


def key_of(case: Case) -> str:
    """Return a text that two cases share exactly where their calls are the same."""
    sizes = ", ".join(f"{name} {value}" for name, value in sorted(case.sizes.items()))
    words = [sizes] if sizes else []
    words += [f"mask {case.mask}"] if case.mask else []
    words += [f"score_mod {case.score_mod}"] if case.score_mod else []
    words += [f"layout {case.layout}"] if case.layout != "contiguous" else []
    return "; ".join(words) or "no changes"


@dataclass(frozen=True, slots=True)
class Cotangents:
    """What a backward is given: on the cpu.

    Attributes:
        out, lse: a forward's outputs, as any implementation may have returned them.
        grad_out, grad_lse: their gradients; grad_lse None where only out was used.
    """

    out: Tensor
    lse: Tensor
    grad_out: Tensor
    grad_lse: Tensor | None

    def to(self, device: str) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
        """Return the four on a device."""
        grad_lse = None if self.grad_lse is None else self.grad_lse.to(device)
        return self.out.to(device), self.lse.to(device), self.grad_out.to(device), grad_lse


def compare(case: Case, result: AttentionResult) -> dict[str, float]:
    """Hold outputs to a case's bounds.

    Returns:
        ``<output>``: the error over its bound.

    Raises:
        Violated: an error is beyond its bound, or an output is missing or has another shape.
    """
    return worst(_judged(lambda: _ruler(_keyed(case)).compare(on_cpu(result))))


def compare_gradients(case: Case, with_lse: bool, grads: AttentionGradients) -> dict[str, float]:
    """Hold gradients to a case's bounds; as :func:`compare`."""
    there = AttentionGradients(
        grads.query.cpu(),
        grads.key.cpu(),
        grads.value.cpu(),
        tuple(None if grad is None else grad.cpu() for grad in grads.captured),
    )
    return worst(_judged(lambda: _gradient_ruler(_keyed(case), with_lse).compare(there)))


def cotangents(case: Case, with_lse: bool) -> Cotangents:
    """Return what a backward of the case is given."""
    return _cotangents(_keyed(case), with_lse)


def exact(case: Case) -> AttentionResult:
    """Return the reference's outputs, on the cpu."""
    return _exact(_keyed(case))


def on_cpu(result: AttentionResult) -> AttentionResult:
    """Return the same outputs on the cpu."""
    lse = None if result.lse is None else result.lse.cpu()
    max_scores = None if result.max_scores is None else result.max_scores.cpu()
    return AttentionResult(result.out.cpu(), lse, max_scores)


def worst(errors: Sequence[Error]) -> dict[str, float]:
    """Return each error over its bound.

    Raises:
        Violated: one is larger than its bound.
    """
    problems = report(errors)
    if problems:
        raise Violated(problems)
    return {error.name: error.ratio for error in errors}


def _judged(compared: object) -> Sequence[Error]:
    assert callable(compared)
    try:
        errors: Sequence[Error] = compared()
    except (ValueError, AttributeError) as error:
        # The ruler's own words: a shape that differs, an output that was not asked for.
        raise Violated(str(error)) from error
    return errors


def _keyed(case: Case) -> _Key:
    key = _Key(key_of(case))
    key.case = case
    return key


@lru_cache(maxsize=_KEPT)
def _ruler(key: _Key) -> Ruler:
    return Ruler(key.case.call())


@lru_cache(maxsize=_KEPT)
def _exact(key: _Key) -> AttentionResult:
    return reference_forward(key.case.call())


@lru_cache(maxsize=_KEPT)
def _cotangents(key: _Key, with_lse: bool) -> Cotangents:
    call = key.case.call()
    forward = reference_forward(replace(call, lse=True))
    assert forward.lse is not None
    generator = torch.Generator().manual_seed(3)
    grad_out = torch.randn(forward.out.shape, generator=generator).to(call.query.dtype)
    grad_lse = torch.randn(forward.lse.shape, generator=generator).to(forward.lse.dtype)
    return Cotangents(forward.out, forward.lse, grad_out, grad_lse if with_lse else None)


@lru_cache(maxsize=_KEPT)
def _gradient_ruler(key: _Key, with_lse: bool) -> GradientRuler:
    given = _cotangents(key, with_lse)
    return GradientRuler(key.case.call(), given.grad_out, given.grad_lse)
