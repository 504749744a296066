"""Which of torch's operators a device has, tried one by one."""

from __future__ import annotations

from torchyard_mps.operators._probe import Outcome, Support, probe
from torchyard_mps.operators._programs import PROGRAMS

__all__ = ["PROGRAMS", "Outcome", "Support", "probe"]
