"""Variables of the whole line: normal, Student's t."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, distributions

from torchyard_mps.distributions import _draws as draws
from torchyard_mps.distributions._drawn import Reparameterised, drawn_shape
from torchyard_mps.distributions._gradients import gamma

__all__ = ["Normal", "StudentT"]


class Normal(Reparameterised, distributions.Normal):
    """torch.distributions.Normal: ``Normal(loc, scale)``."""

    def rsample(
        self, sample_shape: Sequence[int] = (), generator: torch.Generator | None = None
    ) -> Tensor:
        shape = drawn_shape(self, sample_shape)
        drawn = draws.normal(shape, draws.key_of(generator, self.loc.device))
        return self.loc + self.scale * drawn.to(self.loc.dtype)


class StudentT(Reparameterised, distributions.StudentT):
    """torch.distributions.StudentT: ``StudentT(df, loc, scale)``."""

    def rsample(
        self, sample_shape: Sequence[int] = (), generator: torch.Generator | None = None
    ) -> Tensor:
        shape = drawn_shape(self, sample_shape)
        device, dtype = self.df.device, self.df.dtype
        drawn = draws.normal(shape, draws.key_of(generator, device)).to(dtype)
        half = 0.5 * self.df.expand(shape)
        # Chi-squared over df is a gamma variable over its mean.
        spread = gamma(half, draws.key_of(generator, device)) / half
        spread = spread.clamp_min(torch.finfo(dtype).tiny)
        return self.loc + self.scale * drawn * torch.rsqrt(spread)
