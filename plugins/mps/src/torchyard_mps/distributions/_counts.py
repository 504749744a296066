"""Counts: Poisson, binomial, geometric, negative binomial."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, distributions

from torchyard_mps.distributions import _draws as draws
from torchyard_mps.distributions._drawn import drawn_shape

__all__ = ["Binomial", "Geometric", "NegativeBinomial", "Poisson"]


class Poisson(distributions.Poisson):
    """torch.distributions.Poisson: ``Poisson(rate)``."""

    @torch.no_grad()
    def sample(
        self, sample_shape: Sequence[int] = (), generator: torch.Generator | None = None
    ) -> Tensor:
        """Draw counts.

        Args:
            sample_shape: dimensions before those of the distribution.
            generator: of the CPU, from which the draw's key is taken; None: torch's default one.

        Raises:
            ValueError: the parameters are on another device than an Apple GPU.
        """
        key = draws.key_of(generator, self.rate.device)
        drawn = draws.poisson(self.rate.expand(drawn_shape(self, sample_shape)), key)
        return drawn.to(self.rate.dtype)


class Binomial(distributions.Binomial):
    """torch.distributions.Binomial: ``Binomial(total_count, probs)``."""

    @torch.no_grad()
    def sample(
        self, sample_shape: Sequence[int] = (), generator: torch.Generator | None = None
    ) -> Tensor:
        """Draw counts of successes; arguments and errors as of :meth:`Poisson.sample`."""
        shape = drawn_shape(self, sample_shape)
        key = draws.key_of(generator, self.probs.device)
        drawn = draws.binomial(self.total_count.expand(shape), self.probs.expand(shape), key)
        return drawn.to(self.probs.dtype)


class Geometric(distributions.Geometric):
    """torch.distributions.Geometric: ``Geometric(probs)``, the failures before a success."""

    @torch.no_grad()
    def sample(
        self, sample_shape: Sequence[int] = (), generator: torch.Generator | None = None
    ) -> Tensor:
        """Draw counts of failures; arguments and errors as of :meth:`Poisson.sample`."""
        shape = drawn_shape(self, sample_shape)
        drawn = draws.exponential(shape, draws.key_of(generator, self.probs.device))
        waited = drawn / -torch.log1p(-self.probs.to(drawn.dtype))
        return waited.floor().to(self.probs.dtype)


class NegativeBinomial(distributions.NegativeBinomial):
    """torch.distributions.NegativeBinomial: ``NegativeBinomial(total_count, probs)``."""

    @torch.no_grad()
    def sample(
        self, sample_shape: Sequence[int] = (), generator: torch.Generator | None = None
    ) -> Tensor:
        """Draw counts of successes; arguments and errors as of :meth:`Poisson.sample`."""
        shape, device = drawn_shape(self, sample_shape), self.logits.device
        # A Poisson variable whose mean is a gamma variable times the odds.
        spread, _ = draws.gamma(self.total_count.expand(shape), draws.key_of(generator, device))
        rate = spread * torch.exp(self.logits.to(spread.dtype)).expand(shape)
        # Of no trials, which torch's class takes, there are no successes.
        rate = torch.where(self.total_count.expand(shape) == 0, 0.0, rate)
        drawn = draws.poisson(rate, draws.key_of(generator, device))
        return drawn.to(self.logits.dtype)
