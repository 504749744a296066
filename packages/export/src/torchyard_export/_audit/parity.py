"""Whether a program computes what the model does, case by case."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Self

import torch
from torch import Tensor

from torchyard_export._audit.reference import Case
from torchyard_export._finding import Finding, FindingKind
from torchyard_export._tree import flatten
from torchyard_export.contract import TargetError

# What runs a call: the leaves of its arguments -> the leaves of its outputs.
Runner = Callable[[Sequence[Any]], Sequence[Any]]


@dataclass(frozen=True, slots=True)
class Comparison:
    """The result of one case.

    Attributes:
        wrong: what differs; empty where nothing does.
        error: the greatest distance from the exact values.
        ratio: the greatest such distance in units of its bound; 1 is the most that passes.
    """

    wrong: str
    error: float = 0.0
    ratio: float = 0.0


@dataclass(frozen=True, slots=True)
class Stage:
    """One form of a program, and how it did.

    Attributes:
        name: ``export``, ``decompositions``, ``saved``, or a target's.
        cases: how many calls were compared.
        wrong: how many differed.
        error: the greatest distance from float64 among those that passed.
        ratio: the greatest such distance in units of its bound.
        seconds: what making this form took.
        findings: why it is refused; empty where it passed.
    """

    name: str
    cases: int
    wrong: int
    error: float
    ratio: float
    seconds: float = 0.0
    findings: tuple[Finding, ...] = field(default=())

    @property
    def passed(self) -> bool:
        """Whether anything was compared, and all of it was right."""
        return self.cases > 0 and not self.wrong and not self.findings

    def to_json(self) -> dict[str, Any]:
        """Return the stage as plain data."""
        return {**asdict(self), "findings": [item.to_json() for item in self.findings]}


def compare(case: Case, got: Sequence[Any]) -> Comparison:
    """Compare a program's outputs with what is right."""
    if len(got) != len(case.outputs):
        return Comparison(f"expected {len(case.outputs)} outputs, got {len(got)}")
    error = ratio = 0.0
    for (path, wanted), exact, bound, found in zip(
        case.outputs, case.exact, case.bounds, got, strict=True
    ):
        place = f"output {path}" if path else "the output"
        if not isinstance(wanted, Tensor):
            if wanted != found:
                return Comparison(f"{place}: expected {wanted!r}, got {found!r}")
            continue
        wrong, distance = _distance(place, wanted, exact, found)
        if wrong:
            return Comparison(wrong)
        if not distance <= bound:
            text = f"{place}: {distance:.3g} from float64, allowed {bound:.3g}"
            return Comparison(text, distance, math.inf if not bound else distance / bound)
        error = max(error, distance)
        ratio = max(ratio, distance / bound if bound else 0.0)
    return Comparison("", error, ratio)


def _distance(place: str, wanted: Tensor, exact: Any, found: Any) -> tuple[str, float]:
    if not isinstance(found, Tensor):
        return f"{place}: expected a tensor, got {type(found).__name__}", 0.0
    if found.shape != wanted.shape:
        return f"{place}: expected shape {tuple(wanted.shape)}, got {tuple(found.shape)}", 0.0
    if found.dtype != wanted.dtype:
        return f"{place}: expected {wanted.dtype}, got {found.dtype}", 0.0
    if not wanted.is_floating_point():
        equal = torch.equal(found.cpu(), wanted.cpu())
        return ("" if equal else f"{place}: expected the same elements, got others"), 0.0
    wide, got = exact.double().cpu(), found.double().cpu()
    finite = torch.isfinite(wide)
    if not torch.equal(torch.where(finite, 0, wide).nan_to_num(1.5), _rest(got, finite)):
        return f"{place}: NaN or infinity elsewhere than in the model's", 0.0
    if not bool(finite.any()):
        return "", 0.0
    return "", float((got - wide)[finite].abs().max())


def _rest(got: Tensor, finite: Tensor) -> Tensor:
    # A value that is not finite where the model's is shows as one that is nowhere equal.
    outside = torch.where(finite & torch.isfinite(got), 0, got)
    return outside.nan_to_num(1.5)


def sweep(
    name: str,
    runner: Runner,
    cases: Iterable[Case],
    *,
    seconds: float = 0.0,
    suspect: Callable[[Case, Sequence[Any]], Finding | None] | None = None,
) -> Stage:
    """Run every case, and say what was wrong.

    Args:
        name: of the stage.
        runner: what is judged.
        cases: the calls.
        seconds: what making the runner took.
        suspect: asked for a better name of what went wrong in a case.
    """
    count = wrong = 0
    error = ratio = 0.0
    findings: list[Finding] = []
    for case in cases:
        count += 1
        kind = FindingKind.WRONG_RESULT
        leaves = [leaf for _, leaf in flatten(case.arguments)]
        try:
            with torch.no_grad():
                got = list(runner([_copied(leaf) for leaf in leaves]))
        except Exception as problem:
            result = Comparison(f"raised {type(problem).__name__}: {str(problem)[:400]}")
            if isinstance(problem, TargetError):
                kind = FindingKind.TARGET_REFUSES
            got = []
        else:
            result = compare(case, got)
        if result.wrong:
            wrong += 1
            if len(findings) < 3:
                named = suspect(case, got) if suspect is not None and got else None
                sizes = ", ".join(f"{key}={size}" for key, size in case.sizes.items())
                text = f"{name}: at {sizes or 'the example'}: {result.wrong}"
                findings.append(named or Finding(kind, text))
        else:
            error, ratio = max(error, result.error), max(ratio, result.ratio)
    return Stage(name, count, wrong, error, ratio, round(seconds, 3), tuple(findings))


class Stopwatch:
    """Measure what making something takes."""

    def __enter__(self) -> Self:
        self._start = time.perf_counter()
        self.seconds = 0.0
        return self

    def __exit__(self, *_: object) -> None:
        self.seconds = time.perf_counter() - self._start


def _copied(leaf: Any) -> Any:
    return leaf.detach().clone() if isinstance(leaf, Tensor) else leaf
