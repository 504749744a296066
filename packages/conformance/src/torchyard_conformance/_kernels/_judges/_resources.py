"""Laws of kernels about memory that calls leak, and the time that they take."""

from __future__ import annotations

from collections.abc import Iterable

from torchyard_conformance._kernels._case import Case
from torchyard_conformance._kernels._kernel import Kernel
from torchyard_conformance._outcome import NotSupported
from torchyard_conformance._trials._resources import costs_little, does_not_grow

__all__ = ["accepted", "costs_little_beside_the_reference", "keeps_no_memory"]


def keeps_no_memory(kernel: Kernel, cases: Iterable[Case]) -> dict[str, float]:
    """Repeat a call with tensors of its own each time."""
    case = accepted(kernel, cases)
    return does_not_grow(lambda: kernel.run(case, kernel.accept(case)), kernel.device)


def costs_little_beside_the_reference(kernel: Kernel, cases: Iterable[Case]) -> dict[str, float]:
    """Time a call that is made already, and the reference's in float64."""
    case = accepted(kernel, cases)
    given, there = kernel.accept(case), case.given()
    return costs_little(lambda: kernel.run(case, given), lambda: case.exact(there), kernel.device)


def accepted(kernel: Kernel, cases: Iterable[Case]) -> Case:
    """Return the first case that the implementation accepts."""
    for case in cases:
        try:
            kernel.accept(case)
        except NotSupported:
            continue
        return case
    raise NotSupported("accepts none of the calls that the kit has for the contract")
