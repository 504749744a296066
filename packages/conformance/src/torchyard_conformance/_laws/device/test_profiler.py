"""The profile of a device."""

from __future__ import annotations

from torchyard_conformance import Subject, law
from torchyard_conformance._laws.device._tried import devices, try_check


@law("device.profiler", profiles=("device",), cases=devices)
def test_operators_are_in_the_profile(subject: Subject, case: str) -> None:
    """torch.profiler names the operators that ran on the device, as often as they ran.

    Why: the first question about a slow model is where the time goes.

    Fix: run operators through torch's dispatcher; times of the device need
    `registerPrivateUse1Methods` or an activity profiler of Kineto, and are not asked for here.
    """
    try_check(subject, "profiler", case)
