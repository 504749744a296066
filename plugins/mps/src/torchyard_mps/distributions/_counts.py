"""Counts: Poisson, binomial, geometric, negative binomial."""

from __future__ import annotations

import torch
from torch import Tensor, distributions

from torchyard_mps.distributions import _draws as draws
from torchyard_mps.distributions._drawn import Drawn

__all__ = ["Binomial", "Geometric", "NegativeBinomial", "Poisson"]


class Poisson(Drawn, distributions.Poisson):
    """torch.distributions.Poisson: ``Poisson(rate)``."""

    def _drawn(self, shape: torch.Size, generator: torch.Generator | None) -> Tensor:
        key = draws.key_of(generator, self.rate.device)
        drawn = draws.poisson(self.rate.expand(shape), key)
        return drawn.to(self.rate.dtype)


class Binomial(Drawn, distributions.Binomial):
    """torch.distributions.Binomial: ``Binomial(total_count, probs)``."""

    def _drawn(self, shape: torch.Size, generator: torch.Generator | None) -> Tensor:
        key = draws.key_of(generator, self.probs.device)
        drawn = draws.binomial(self.total_count.expand(shape), self.probs.expand(shape), key)
        return drawn.to(self.probs.dtype)


class Geometric(Drawn, distributions.Geometric):
    """torch.distributions.Geometric: ``Geometric(probs)``, the failures before a success."""

    def _drawn(self, shape: torch.Size, generator: torch.Generator | None) -> Tensor:
        drawn = draws.exponential(shape, draws.key_of(generator, self.probs.device))
        waited = drawn / -torch.log1p(-self.probs.to(drawn.dtype))
        return waited.floor().to(self.probs.dtype)


class NegativeBinomial(Drawn, distributions.NegativeBinomial):
    """torch.distributions.NegativeBinomial: ``NegativeBinomial(total_count, probs)``."""

    def _drawn(self, shape: torch.Size, generator: torch.Generator | None) -> Tensor:
        device = self.logits.device
        # A Poisson variable whose mean is a gamma variable times the odds.
        spread, _ = draws.gamma(self.total_count.expand(shape), draws.key_of(generator, device))
        rate = spread * torch.exp(self.logits.to(spread.dtype)).expand(shape)
        # Of no trials, which torch's class takes, there are no successes.
        rate = torch.where(self.total_count.expand(shape) == 0, 0.0, rate)
        drawn = draws.poisson(rate, draws.key_of(generator, device))
        return drawn.to(self.logits.dtype)
