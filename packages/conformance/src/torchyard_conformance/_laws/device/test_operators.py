"""What operators of a device compute, one by one."""

from __future__ import annotations

from torchyard_conformance import Subject, law
from torchyard_conformance._laws.device._tried import devices, try_check


@law("device.operators", profiles=("device",), cases=devices)
def test_operators_compute_what_the_cpu_does(subject: Subject, case: str) -> None:
    """Fifty operators give the CPU's results and gradients, of views, broadcast and empty tensors.

    Why: a kernel that takes an operator from the CPU may be wrong for a dtype, a stride or an
    offset that no model of the other laws has, and training goes on without an error.

    Fix: the message names the operator, the dtype and the layout. An operator is asked for by
    several names: `mul.Tensor`, `mul_.Tensor` and `mul.out` are kernels of their own.
    """
    try_check(subject, "operators", case)
