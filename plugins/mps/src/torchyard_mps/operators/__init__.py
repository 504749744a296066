"""Which of torch's operators a device has, tried one by one; and ours for those that it lacks."""

from __future__ import annotations

from torchyard_mps.operators._calls import ComputedOnCpuWarning
from torchyard_mps.operators._probe import Outcome, Support, probe
from torchyard_mps.operators._programs import PROGRAMS
from torchyard_mps.operators._registration import Registration, Replaced, register

__all__ = [
    "PROGRAMS",
    "ComputedOnCpuWarning",
    "Outcome",
    "Registration",
    "Replaced",
    "Support",
    "probe",
    "register",
]
