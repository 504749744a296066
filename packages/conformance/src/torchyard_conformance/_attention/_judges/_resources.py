"""Laws of attention about memory that calls leak, and the time that they take."""

from __future__ import annotations

from torchyard_attention.cases import Case
from torchyard_attention.reference import reference_backward, reference_forward
from torchyard_conformance._attention._cases import RELATED
from torchyard_conformance._attention._judges._outputs import computes
from torchyard_conformance._attention._kernel import Kernel
from torchyard_conformance._attention._rulers import cotangents
from torchyard_conformance._outcome import NotSupported
from torchyard_conformance._trials._resources import costs_little, does_not_grow

__all__ = ["accepted", "costs_little_beside_the_reference", "keeps_no_memory"]


def keeps_no_memory(kernel: Kernel) -> dict[str, float]:
    """Repeat a call with tensors of its own each time."""
    case = accepted(kernel)
    return does_not_grow(lambda: computes(kernel, case, kernel.accept(case)), kernel.device)


def costs_little_beside_the_reference(kernel: Kernel) -> dict[str, float]:
    """Time a call that is made already, and the reference's in float64."""
    case = accepted(kernel)
    call = kernel.accept(case)
    there, given = case.call(), cotangents(case, True).to("cpu")

    def reference() -> object:
        return reference_backward(there, *given) if kernel.is_backward else reference_forward(there)

    return costs_little(lambda: computes(kernel, case, call), reference, kernel.device)


def accepted(kernel: Kernel) -> Case:
    """Return the first case that the implementation accepts."""
    for case in RELATED.values():
        try:
            kernel.accept(case)
        except NotSupported:
            continue
        return case
    raise NotSupported("accepts none of the calls that are related to one another")
