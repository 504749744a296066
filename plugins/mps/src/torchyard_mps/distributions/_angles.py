"""``VonMises``."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, distributions

from torchyard_mps.distributions import _draws as draws
from torchyard_mps.distributions._drawn import drawn_shape

__all__ = ["VonMises"]


class VonMises(distributions.VonMises):
    """torch.distributions.VonMises: ``VonMises(loc, concentration)``."""

    @torch.no_grad()
    def sample(
        self, sample_shape: Sequence[int] = (), generator: torch.Generator | None = None
    ) -> Tensor:
        """Draw angles in [-pi, pi).

        Args:
            sample_shape: dimensions before those of the distribution.
            generator: of the CPU, from which the draw's key is taken; None: torch's default one.

        Raises:
            ValueError: the parameters are on another device than an Apple GPU.
        """
        shape = drawn_shape(self, sample_shape)
        key = draws.key_of(generator, self.loc.device)
        drawn = draws.angle(self.concentration.expand(shape), key).to(self.loc.dtype)
        return (drawn + math.pi + self.loc) % (2 * math.pi) - math.pi
