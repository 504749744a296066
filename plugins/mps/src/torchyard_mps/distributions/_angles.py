"""``VonMises``."""

from __future__ import annotations

import math

import torch
from torch import Tensor, distributions

from torchyard_mps.distributions import _draws as draws
from torchyard_mps.distributions._drawn import Drawn

__all__ = ["VonMises"]


class VonMises(Drawn, distributions.VonMises):
    """torch.distributions.VonMises: ``VonMises(loc, concentration)``."""

    def _drawn(self, shape: torch.Size, generator: torch.Generator | None) -> Tensor:
        key = draws.key_of(generator, self.loc.device)
        drawn = draws.angle(self.concentration.expand(shape), key).to(self.loc.dtype)
        return (drawn + math.pi + self.loc) % (2 * math.pi) - math.pi
