"""Variables on the simplex: beta, Dirichlet."""

from __future__ import annotations

import torch
from torch import Tensor, distributions

from torchyard_mps.distributions import _draws as draws
from torchyard_mps.distributions._drawn import Reparameterised
from torchyard_mps.distributions._gradients import simplex

__all__ = ["Beta", "Dirichlet"]


def _inside(drawn: Tensor) -> Tensor:
    """Return variables off the ends of [0, 1], where densities have no value; in place."""
    info = torch.finfo(drawn.dtype)
    drawn.detach().clamp_(min=info.tiny, max=1.0 - info.eps / 2)
    return drawn


class Dirichlet(Reparameterised, distributions.Dirichlet):
    """torch.distributions.Dirichlet: ``Dirichlet(concentration)``."""

    def _drawn(self, shape: torch.Size, generator: torch.Generator | None) -> Tensor:
        key = draws.key_of(generator, self.concentration.device)
        return _inside(simplex(self.concentration.expand(shape), key).clone())


class Beta(Reparameterised, distributions.Beta):
    """torch.distributions.Beta: ``Beta(concentration1, concentration0)``."""

    def _drawn(self, shape: torch.Size, generator: torch.Generator | None) -> Tensor:
        pair = torch.stack([self.concentration1, self.concentration0], -1).expand(*shape, 2)
        key = draws.key_of(generator, pair.device)
        return _inside(simplex(pair, key)[..., 0].clone())
