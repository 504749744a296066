"""What the classes have in common: how ``sample`` and its shapes go."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.distributions import Distribution

__all__ = ["Reparameterised", "drawn_shape"]


def drawn_shape(distribution: Distribution, sample_shape: Sequence[int]) -> torch.Size:
    """Return the shape of what is drawn."""
    return torch.Size(sample_shape) + distribution.batch_shape + distribution.event_shape


class Reparameterised(Distribution):
    """A distribution whose ``sample`` is its ``rsample`` without gradients."""

    def sample(
        self, sample_shape: Sequence[int] = (), generator: torch.Generator | None = None
    ) -> Tensor:
        """Draw, without gradients.

        Args:
            sample_shape: dimensions before those of the distribution.
            generator: of the CPU, from which the draw's key is taken; None: torch's default one.

        Raises:
            ValueError: the parameters are on another device than an Apple GPU.
        """
        with torch.no_grad():
            return self.rsample(sample_shape, generator)

    def rsample(
        self, sample_shape: Sequence[int] = (), generator: torch.Generator | None = None
    ) -> Tensor:
        """Draw, differentiably in the parameters.

        Args:
            sample_shape, generator: as of :meth:`sample`.

        Raises:
            ValueError: as :meth:`sample` does.
        """
        raise NotImplementedError
