"""How far from the float64 reference a result may lie.

The ruler is the error of a naive computation of the same call, in which every product and sum is
rounded to the inputs' dtype: twice as much is accepted, in the greatest error and in the root of
the mean square, since both are draws of the same roundings in another order. Where the naive
computation happens to be exact, four roundings of the greatest result are.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final, NamedTuple

import torch
from torch import Tensor

from torchyard_conformance._kernels._case import Case
from torchyard_conformance._kernels._tensors import same_bits
from torchyard_conformance._outcome import Violated

__all__ = ["compare"]

_FACTOR: Final = 2.0
_STEPS: Final = 4.0


class _Errors(NamedTuple):
    greatest: float
    rms: float


def compare(case: Case, outputs: dict[str, Tensor]) -> dict[str, float]:
    """Hold a case's outputs to its reference.

    Returns:
        By output the error over its bound; 0 where it must be equal, and is.

    Raises:
        Violated: an output is missing, is one too many, or is not what it must be.
    """
    exact, naive = _known(case)
    if list(outputs) != list(exact):
        raise Violated(f"expected {', '.join(exact)}, got {', '.join(outputs)}")
    figures = {}
    for name, right in exact.items():
        got = outputs[name].cpu()
        if got.shape != right.shape:
            raise Violated(f"{name}: expected {list(right.shape)}, got {list(got.shape)}")
        if naive is None or not right.is_floating_point():
            _check_equal(name, got.to(right.dtype), right)
            figures[name] = 0.0
            continue
        figures[name] = _ratio(name, got, right, naive[name])
    return figures


@lru_cache(maxsize=512)
def _known(case: Case) -> tuple[dict[str, Tensor], dict[str, Tensor] | None]:
    """Return the reference's outputs and naive ones, on the CPU wherever torch makes tensors."""
    with torch.no_grad():
        given = case.make()
        exact, naive = case.exact(given), case.naive(given)
    return _on_cpu(exact), None if naive is None else _on_cpu(naive)


def _on_cpu(outputs: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: tensor.cpu() for name, tensor in outputs.items()}


def _check_equal(name: str, got: Tensor, right: Tensor) -> None:
    if not same_bits(got, right):
        differ = got != right
        first = differ.nonzero()[:1].tolist()
        raise Violated(
            f"{name}: {int(differ.sum())} of {right.numel()} elements differ, the first at "
            f"{first[0] if first else 'the sign of a zero'}"
        )


def _ratio(name: str, got: Tensor, right: Tensor, naive: Tensor) -> float:
    wide, finite = got.double(), right.isfinite()
    if not same_bits(torch.where(finite, 0.0, wide), torch.where(finite, 0.0, right)):
        raise Violated(f"{name}: NaN and infinities are not where the reference has them")
    if not finite.any():
        return 0.0
    error = _errors(wide, right, finite)
    # Where naive arithmetic overflows, its error bounds nothing.
    rough = _errors(naive.double(), right, finite & naive.isfinite())
    size = _errors(torch.zeros_like(right), right, finite)
    eps = torch.finfo(naive.dtype).eps * _STEPS
    ratios = [
        one / bound if one else 0.0
        for one, bound in (
            (error.greatest, _FACTOR * rough.greatest + eps * size.greatest),
            (error.rms, _FACTOR * rough.rms + eps * size.rms),
        )
    ]
    if not max(ratios) <= 1.0:
        raise Violated(
            f"{name}: error {error.greatest:.3g}, {max(ratios):.3g} times the bound, naive "
            f"arithmetic has {rough.greatest:.3g}"
        )
    return max(ratios)


def _errors(got: Tensor, right: Tensor, finite: Tensor) -> _Errors:
    error = (got[finite] - right[finite]).abs()
    if not error.numel():
        return _Errors(0.0, 0.0)
    return _Errors(float(error.max()), float(error.square().mean().sqrt()))
