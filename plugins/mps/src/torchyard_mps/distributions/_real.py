"""Variables of the whole line: normal, Student's t."""

from __future__ import annotations

import torch
from torch import Tensor, distributions

from torchyard_mps.distributions import _draws as draws
from torchyard_mps.distributions._drawn import Reparameterised
from torchyard_mps.distributions._gradients import gamma

__all__ = ["Normal", "StudentT"]


class Normal(Reparameterised, distributions.Normal):
    """torch.distributions.Normal: ``Normal(loc, scale)``."""

    def _drawn(self, shape: torch.Size, generator: torch.Generator | None) -> Tensor:
        drawn = draws.normal(shape, draws.key_of(generator, self.loc.device))
        return self.loc + self.scale * drawn.to(self.loc.dtype)


class StudentT(Reparameterised, distributions.StudentT):
    """torch.distributions.StudentT: ``StudentT(df, loc, scale)``."""

    def _drawn(self, shape: torch.Size, generator: torch.Generator | None) -> Tensor:
        device, dtype = self.df.device, self.df.dtype
        drawn = draws.normal(shape, draws.key_of(generator, device)).to(dtype)
        half = 0.5 * self.df.expand(shape)
        # Chi-squared over df is a gamma variable over its mean.
        spread = gamma(half, draws.key_of(generator, device)) / half
        spread = spread.clamp_min(torch.finfo(dtype).tiny)
        return self.loc + self.scale * drawn * torch.rsqrt(spread)
