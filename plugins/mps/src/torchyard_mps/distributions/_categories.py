"""``Categorical``, and ``multinomial`` with and without replacement."""

from __future__ import annotations

import torch
from torch import Tensor, distributions

from torchyard import arguments
from torchyard_mps.distributions import _draws as draws
from torchyard_mps.distributions._drawn import Drawn

__all__ = ["Categorical", "multinomial"]


class Categorical(Drawn, distributions.Categorical):
    """torch.distributions.Categorical: ``Categorical(probs)`` or ``Categorical(logits=...)``."""

    def _drawn(self, shape: torch.Size, generator: torch.Generator | None) -> Tensor:
        rows = self.logits.reshape(-1, self.logits.shape[-1])
        count = shape[: len(shape) - len(self.batch_shape)].numel()
        return draws.categories(rows, count, draws.key_of(generator, rows.device)).reshape(shape)


@torch.no_grad()
def multinomial(
    input: Tensor,
    num_samples: int,
    replacement: bool = False,
    *,
    generator: torch.Generator | None = None,
) -> Tensor:
    """Draw categories by their weights, as torch.multinomial does.

    Without replacement by Efraimidis and Spirakis ("Weighted random sampling with a reservoir",
    2006): those whose exponential waiting time over their weight is shortest, in its order.

    Args:
        input: [categories] or [rows, categories]: weights, not negative, whose sum need not be 1.
        num_samples: how many of each row.
        replacement: whether a category may be drawn again.
        generator: of the CPU, from which the draw's key is taken; None: torch's default one.

    Returns:
        int64 [num_samples] or [rows, num_samples].

    Raises:
        TypeError, ValueError: an argument does not fit; names it.
    """
    weights = arguments.tensor("multinomial", "input", input)
    count = arguments.integer("multinomial", "num_samples", num_samples, least=1)
    replacement = arguments.boolean("multinomial", "replacement", replacement)
    if weights.dim() not in (1, 2) or not weights.shape[-1] or not weights.is_floating_point():
        raise arguments.wrong_value(
            "multinomial",
            "input",
            "floats of the shape [categories] or [rows, categories]",
            f"{weights.dtype} {list(weights.shape)}",
        )
    others = weights[~((weights >= 0) & (weights < float("inf")))]
    if others.numel():
        raise arguments.wrong_value(
            "multinomial",
            "input",
            "weights that are finite and not negative",
            f"{others.numel()} others, such as {float(others[0])}",
        )
    least = int((weights > 0).sum(-1).min()) if weights.numel() else count
    if least < (1 if replacement else count):
        raise arguments.wrong_value(
            "multinomial",
            "input",
            "a positive weight for each draw" if not replacement else "a positive weight in a row",
            f"a row with {least} for num_samples={count}",
        )
    key = draws.key_of(generator, weights.device)
    logits = weights.to(torch.float32).log()
    if replacement:
        drawn = draws.categories(logits.reshape(-1, logits.shape[-1]), count, key).mT
        return drawn.reshape(*weights.shape[:-1], count).contiguous()
    levels = logits - draws.exponential(logits.shape, key).log()
    return levels.argsort(dim=-1, descending=True, stable=True)[..., :count].contiguous()
