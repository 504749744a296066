"""What the classes have in common: how ``sample`` and ``rsample`` go."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence

import torch
from torch import Tensor
from torch.distributions import Distribution

__all__ = ["Drawn", "Reparameterised"]


class Drawn(Distribution):
    """A distribution that kernels draw."""

    @torch.no_grad()
    def sample(
        self, sample_shape: Sequence[int] = (), generator: torch.Generator | None = None
    ) -> Tensor:
        """Draw, without gradients.

        Args:
            sample_shape: dimensions before those of the distribution.
            generator: of the CPU, from which the draw's key is taken; None: torch's default one.

        Returns:
            Of the parameters' dtype; categories are int64.

        Raises:
            ValueError: the parameters are on another device than an Apple GPU.
        """
        return self._drawn(self._shape(sample_shape), generator)

    def _shape(self, sample_shape: Sequence[int]) -> torch.Size:
        return torch.Size(sample_shape) + self.batch_shape + self.event_shape

    @abstractmethod
    def _drawn(self, shape: torch.Size, generator: torch.Generator | None) -> Tensor:
        """Draw a tensor of a shape, which ends with the distribution's own."""


class Reparameterised(Drawn):
    """One that is drawn differentiably in its parameters."""

    def rsample(
        self, sample_shape: Sequence[int] = (), generator: torch.Generator | None = None
    ) -> Tensor:
        """Draw, differentiably in the parameters; arguments and errors as of :meth:`sample`."""
        return self._drawn(self._shape(sample_shape), generator)
