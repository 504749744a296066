"""The profile of a device."""

from __future__ import annotations

from torchyard_conformance import Subject, law
from torchyard_conformance._laws.device._tried import devices, try_check


@law("device.profiler", profiles=("device",), cases=devices)
def test_operators_are_in_the_profile(subject: Subject, case: str) -> None:
    """torch.profiler names the operators that ran on the device, as often as they ran.

    With `use_device` it has a time of the device for each.

    Why: the first question about a slow model is where the time goes. Without them,
    torch logs an error for every operator of such a profile.

    Fix: run operators through torch's dispatcher; times come from `registerPrivateUse1Methods`.
    """
    try_check(subject, "profiler", case)
