"""The laws of kernels as data: the function that checks each, and its calls."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from torchyard_conformance._kernels._case import Case
from torchyard_conformance._kernels._cases import _linear, _pointwise, _recurrent_grids, _topk
from torchyard_conformance._kernels._judges import (
    _bits,
    _forward_mode,
    _outputs,
    _resources,
    _verdicts,
)
from torchyard_conformance._kernels._kernel import Kernel

__all__ = ["EVERYTHING", "LAWS", "KernelLaw", "judge"]

_Figures = dict[str, float]
_Grid = Mapping[str, Mapping[str, Case]]
# Cases of each contract that a quick look takes.
_QUICK: Final = 3
_FAMILIES: Final = (_linear, _pointwise, _recurrent_grids, _topk)


@dataclass(frozen=True, slots=True)
class KernelLaw:
    """How a law is held.

    Attributes:
        check: raises Violated, or NotSupported where the law does not apply; returns figures. Takes
            an implementation and a case, or all cases of its contract.
        cases: the calls of each contract, by name.
        each: whether it is held on each case.
    """

    check: Callable[..., _Figures]
    cases: _Grid
    each: bool = True

    def case_names(self, contract: str, *, quick: bool = False) -> Iterator[str]:
        """Yield the cases' names; one empty name where all are held together."""
        names = list(self.cases.get(contract, ()))
        if names and not self.each:
            yield ""
        else:
            step = max(1, -(-len(names) // _QUICK)) if quick else 1
            yield from names[::step]


def judge(law: KernelLaw, kernel: Kernel, case: str = "") -> _Figures:
    """Hold an implementation to a law on one of its cases.

    Returns:
        Figures by name, such as each error over its bound.

    Raises:
        Violated: it breaks the law.
        NotSupported: the law does not apply to this case.
    """
    cases = law.cases[kernel.contract]
    return law.check(kernel, cases[case] if law.each else cases.values())


def _grid(word: str) -> _Grid:
    """Return the cases that the families have under a word, by contract."""
    return MappingProxyType(
        {
            contract: grids[word]
            for family in _FAMILIES
            for contract, grids in family.GRIDS.items()
            if word in grids
        }
    )


def _everything() -> _Grid:
    """Return all cases of all families, by contract."""
    return MappingProxyType(
        {
            contract: {
                f"{word}/{name}": case
                for word, cases in grids.items()
                for name, case in cases.items()
            }
            for family in _FAMILIES
            for contract, grids in family.GRIDS.items()
        }
    )


EVERYTHING: Final = _everything()

LAWS: Final[Mapping[str, KernelLaw]] = MappingProxyType(
    {
        "truth.kernels-accept-something": KernelLaw(
            _verdicts.accepts_something, EVERYTHING, each=False
        ),
        "truth.kernels-refuse-with-a-reason": KernelLaw(
            _verdicts.refuses_with_a_reason, EVERYTHING, each=False
        ),
        "truth.kernels-refuse-when-demanded": KernelLaw(
            _verdicts.refuses_when_demanded, EVERYTHING, each=False
        ),
        "truth.kernels-memory-does-not-grow": KernelLaw(
            _resources.keeps_no_memory, EVERYTHING, each=False
        ),
        "truth.kernels-cost-near-reference": KernelLaw(
            _resources.costs_little_beside_the_reference, EVERYTHING, each=False
        ),
        "truth.kernels-match-reference": KernelLaw(_outputs.matches_reference, _grid("matches")),
        "truth.kernels-any-memory": KernelLaw(_outputs.matches_reference, _grid("any-memory")),
        "truth.kernels-stated-form": KernelLaw(_outputs.has_the_stated_form, _grid("forms")),
        "truth.kernels-memory-left-alone": KernelLaw(_outputs.leaves_memory_alone, _grid("forms")),
        "truth.linear-packed-weights": KernelLaw(_outputs.matches_reference, _grid("weights")),
        "truth.pointwise-written-lists": KernelLaw(_outputs.writes_lists, _grid("written")),
        "truth.kernels-drop-no-tangent": KernelLaw(
            _forward_mode.drops_no_tangent, _grid("tangents")
        ),
        "truth.recurrent-recorded-gradients": KernelLaw(
            _outputs.records_gradients, _grid("recorded")
        ),
        "numerics.recurrent-padding": KernelLaw(_outputs.matches_reference, _grid("padding")),
        "numerics.topk-equal-elements": KernelLaw(_outputs.matches_reference, _grid("equal")),
        "numerics.kernels-not-finite": KernelLaw(_outputs.matches_reference, _grid("not-finite")),
        "numerics.kernels-fresh-memory": KernelLaw(_bits.reads_no_fresh_memory, _grid("forms")),
        "numerics.kernels-deterministic": KernelLaw(
            _bits.is_deterministic, {**_grid("batches"), **_grid("repeats")}
        ),
        "numerics.kernels-batch-invariant": KernelLaw(_bits.is_batch_invariant, _grid("batches")),
    }
)
"""Every law of kernels by its id."""
