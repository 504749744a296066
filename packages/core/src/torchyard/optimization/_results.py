"""What a call of a model returns, compared number by number."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch import Tensor

from torchyard._errors import OptimizeError

__all__ = ["Difference", "Judge", "Results", "has_rounding", "results_of"]

# Where in a result a value is -> the value.
Results = dict[str, Any]

# As far from float64 as the model itself, times this: sums in another order differ by as much.
_ROUNDINGS: Final = 4.0
# Elements that are compared at once, in float64.
_CHUNK: Final = 1 << 22
# Of nested results; one that is deeper refers to itself.
_DEPTH: Final = 12


@dataclass(frozen=True, slots=True)
class Difference:
    """How far results are from what they should be.

    Attributes:
        error: of a tensor of floating-point numbers the norm of the difference over the norm of
            what it should be, of others the share of elements that differ; the largest of all.
        where: which of the results that is.
        reason: what differs other than by numbers, such as a shape; empty where nothing does.
    """

    error: float
    where: str
    reason: str = ""


def results_of(value: Any) -> Results:
    """Return copies of the tensors and numbers of a result, by where they are in it."""
    found = {path: _copied(item) for path, item in _leaves(value, "result", 0)}
    if not any(isinstance(item, Tensor) for item in found.values()):
        raise OptimizeError(
            f"optimize: example: expected a call that returns a tensor, or something that holds "
            f"one, got {type(value).__name__}"
        )
    return found


def has_rounding(results: Results) -> bool:
    """Return whether there are floating-point numbers among results."""
    return any(map(_is_floating, results.values()))


class Judge:
    """Says whether results are the model's own.

    Args:
        stock: of the model before anything was changed.
        exact: of the same call in float64; None where ``tolerance`` is given.
        tolerance: how far results may be from ``stock``; None: four times as far from float64 as
            these are, so that only rounding may differ.
    """

    def __init__(self, stock: Results, exact: Results | None, tolerance: float | None) -> None:
        self._stock = stock
        self._exact = exact
        self._tolerance = tolerance

    def check(self, found: Results) -> tuple[Difference, str]:
        """Return the difference from the model's own results, and why that is too much, if it is.

        The reason is empty where the results are right.
        """
        difference = _difference(found, self._stock)
        if difference.reason:
            return difference, f"{difference.where}: {difference.reason}"
        if self._exact is None:
            assert self._tolerance is not None
            if difference.error > self._tolerance:
                text = f"{difference.where} differs by {difference.error:.1e} of its norm"
                return difference, f"{text}, more than the tolerance of {self._tolerance:.1e}"
            return difference, ""
        for path, exact in self._exact.items():
            if not _is_floating(self._stock[path]):
                error = _error(found[path], self._stock[path])
                if error:
                    return difference, f"{path}: {error:.2%} of its elements differ"
                continue
            own = _error(self._stock[path], exact)
            bound = _ROUNDINGS * (own + torch.finfo(self._stock[path].dtype).eps)
            error = _error(found[path], exact)
            if not error <= bound:
                return difference, (
                    f"{path} differs from float64 by {error:.1e} of its norm, where the model "
                    f"itself differs by {own:.1e}"
                )
        return difference, ""


def _leaves(value: Any, path: str, depth: int) -> Iterator[tuple[str, Any]]:
    if depth > _DEPTH:
        return
    if isinstance(value, Tensor | bool | int | float | str) or value is None:
        yield path, value
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from _leaves(item, f"{path}.{key}", depth + 1)
    elif isinstance(value, list | tuple):
        names = getattr(value, "_fields", range(len(value)))
        for name, item in zip(names, value, strict=True):
            yield from _leaves(item, f"{path}.{name}", depth + 1)
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        for field in dataclasses.fields(value):
            yield from _leaves(getattr(value, field.name), f"{path}.{field.name}", depth + 1)


def _copied(value: Any) -> Any:
    return value.detach().clone() if isinstance(value, Tensor) else value


def _difference(found: Results, wanted: Results) -> Difference:
    worst = Difference(0.0, "")
    for path, value in wanted.items():
        if path not in found:
            return Difference(math.inf, path, "it is not there")
        other = found[path]
        if isinstance(value, Tensor):
            if not isinstance(other, Tensor):
                return Difference(math.inf, path, f"expected a tensor, got {type(other).__name__}")
            if other.shape != value.shape or other.dtype != value.dtype:
                text = (
                    f"expected {value.dtype} of shape {list(value.shape)}, got {other.dtype} of "
                    f"shape {list(other.shape)}"
                )
                return Difference(math.inf, path, text)
            error = _error(other, value)
            if error > worst.error:
                worst = Difference(error, path)
        elif not _is_equal(other, value):
            return Difference(math.inf, path, f"expected {value!r}, got {other!r}")
    return worst


def _is_equal(one: Any, other: Any) -> bool:
    if isinstance(one, float) and isinstance(other, float):
        return one == other or math.isclose(one, other, rel_tol=1e-3) or (one != one != other)
    return type(one) is type(other) and bool(one == other)


def _is_floating(value: Any) -> bool:
    return isinstance(value, Tensor) and (value.is_floating_point() or value.is_complex())


def _error(found: Any, wanted: Any) -> float:
    """Return how far a value is from another of its shape; infinite where NaN is elsewhere."""
    if not isinstance(wanted, Tensor):
        return 0.0 if _is_equal(found, wanted) else math.inf
    if found.shape != wanted.shape:
        return math.inf
    if not wanted.numel():
        return 0.0
    if not _is_floating(wanted):
        return float((found.cpu() != wanted.cpu()).double().mean())
    squares = norm = 0.0
    wide = torch.complex128 if wanted.is_complex() else torch.float64
    one, other = found.reshape(-1), wanted.reshape(-1)
    for at in range(0, wanted.numel(), _CHUNK):
        # On the CPU, since not every device has float64.
        a, b = (values[at : at + _CHUNK].cpu().to(wide) for values in (one, other))
        finite = b.isfinite()
        # What is infinite or NaN has to be so in both.
        if not torch.equal(
            a[~finite].nan_to_num(1.0, 2.0, 3.0), b[~finite].nan_to_num(1.0, 2.0, 3.0)
        ):
            return math.inf
        a, b = a[finite], b[finite]
        if not a.isfinite().all():
            return math.inf
        squares += float((a - b).abs().square().sum())
        norm += float(b.abs().square().sum())
    return math.sqrt(squares / norm) if norm else (math.inf if squares else 0.0)
