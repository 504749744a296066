"""What torch.amp.GradScaler calls: a check of gradients, and the next scale; nothing is read.

The formulas are those of torch.amp.GradScaler's documentation.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

__all__ = ["unscale_", "update_scale_"]


def unscale_(self: Sequence[Tensor], found_inf: Tensor, inv_scale: Tensor) -> None:
    """Multiply gradients in place, and set ``found_inf`` to 1 where an element is not finite.

    Args:
        self: gradients, floating.
        found_inf: float32, one element; stays 1 where it is.
        inv_scale: float32, one element.
    """
    factor = inv_scale.reshape(())
    for gradient in self:
        found = gradient.isfinite().all().logical_not()
        found_inf.copy_(torch.where(found, 1.0, found_inf))
        # A factor below float16's smallest would be 0 there.
        wide = torch.promote_types(gradient.dtype, torch.float32)
        gradient.copy_(gradient.to(wide) * factor)


def update_scale_(
    self: Tensor,
    growth_tracker: Tensor,
    found_inf: Tensor,
    scale_growth_factor: float,
    scale_backoff_factor: float,
    growth_interval: int,
) -> Tensor:
    """Make a scale smaller after a step that was not finite, and greater after enough that were.

    Args:
        self: the scale, float32, one element; changed in place, and returned.
        growth_tracker: int32, one element: finite steps since the last change; changed in place.
        found_inf: float32, one element: not 0 after a step that was not finite.
        scale_growth_factor: what a greater scale is multiplied with, where that is finite.
        scale_backoff_factor: what a smaller one is.
        growth_interval: steps.
    """
    bad = (found_inf != 0).reshape(self.shape)
    steps = growth_tracker + 1
    due = (steps == growth_interval).reshape(self.shape)
    grown = self * scale_growth_factor
    kept = torch.where(due & grown.isfinite(), grown, self)
    self.copy_(torch.where(bad, self * scale_backoff_factor, kept))
    reset = (bad | due).reshape(growth_tracker.shape)
    growth_tracker.copy_(torch.where(reset, 0, steps))
    return self
