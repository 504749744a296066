"""Positive variables: exponential, gamma, chi-squared, log-normal."""

from __future__ import annotations

import torch
from torch import Tensor, distributions

from torchyard_mps.distributions import _draws as draws
from torchyard_mps.distributions._drawn import Reparameterised
from torchyard_mps.distributions._gradients import gamma

__all__ = ["Chi2", "Exponential", "Gamma", "LogNormal"]


class Exponential(Reparameterised, distributions.Exponential):
    """torch.distributions.Exponential: ``Exponential(rate)``."""

    def _drawn(self, shape: torch.Size, generator: torch.Generator | None) -> Tensor:
        drawn = draws.exponential(shape, draws.key_of(generator, self.rate.device))
        return drawn.to(self.rate.dtype) / self.rate


class Gamma(Reparameterised, distributions.Gamma):
    """torch.distributions.Gamma: ``Gamma(concentration, rate)``."""

    def _drawn(self, shape: torch.Size, generator: torch.Generator | None) -> Tensor:
        key = draws.key_of(generator, self.concentration.device)
        drawn = gamma(self.concentration.expand(shape), key) / self.rate.expand(shape)
        # The support is open at 0. As in torch, the gradient is not cut off.
        drawn.detach().clamp_(min=torch.finfo(drawn.dtype).tiny)
        return drawn


class Chi2(Gamma, distributions.Chi2):
    """torch.distributions.Chi2: ``Chi2(df)``."""


class LogNormal(Reparameterised, distributions.LogNormal):
    """torch.distributions.LogNormal: ``LogNormal(loc, scale)``."""

    def _drawn(self, shape: torch.Size, generator: torch.Generator | None) -> Tensor:
        drawn = draws.normal(shape, draws.key_of(generator, self.loc.device))
        return torch.exp(self.loc + self.scale * drawn.to(self.loc.dtype))
