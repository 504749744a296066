"""Changes of a model that are in use, each on top of the one before."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from torchyard._contracts.optimization import Applied, Optimization, Variant
from torchyard._errors import OptimizeError
from torchyard.optimization._snapshot import Snapshot

if TYPE_CHECKING:
    from torch import nn

__all__ = ["Step", "Steps"]


@dataclass(frozen=True, slots=True)
class Step:
    """A variant that was applied."""

    optimization: Optimization
    variant: Variant
    applied: Applied


class Steps:
    """What was done to a model, and the way back."""

    def __init__(self, model: nn.Module) -> None:
        self._model = model
        self._made: list[tuple[Step, Snapshot]] = []
        self._final = False

    @property
    def made(self) -> tuple[Step, ...]:
        """The steps, in order."""
        return tuple(step for step, _ in self._made)

    @property
    def freed(self) -> int:
        """Bytes of weights that are there for ``undo`` alone."""
        return sum(step.applied.freed for step in self.made)

    @property
    def held(self) -> int:
        """Bytes that calls read besides the model's tensors."""
        return sum(step.applied.held for step in self.made)

    def reset(self) -> None:
        """Forget what earlier calls computed."""
        for step in self.made:
            if step.applied.reset is not None:
                step.applied.reset()

    def apply(self, optimization: Optimization, variant: Variant, *, keep: bool = True) -> Step:
        """Apply a variant; where it raises, the model is as it was.

        Args:
            keep: whether the originals are kept. Without, there is no way back.

        Raises:
            Exception: whatever the variant raises.
            OptimizeError: it raised and left the model changed.
        """
        before = Snapshot(self._model)
        try:
            applied = variant.apply(keep)
        except Exception as error:
            if change := before.change(self._model):
                raise OptimizeError(
                    f"optimize: {optimization.name} {variant.name} failed and left the model "
                    f"changed ({change}), which is a fault of its plugin: {error}"
                ) from error
            raise
        step = Step(optimization, variant, applied)
        self._made.append((step, before))
        return step

    def undo_last(self) -> Step:
        """Take the last step back.

        Raises:
            OptimizeError: the model is not as it was before the step.
        """
        step, before = self._made.pop()
        step.applied.undo()
        if change := before.change(self._model):
            raise OptimizeError(
                f"optimize: undo of {step.optimization.name} {step.variant.name}: expected the "
                f"model as it was, got a change: {change}; load the model again"
            )
        return step

    def undo(self) -> list[Step]:
        """Take every step back; return them in the order in which they were made."""
        undone = []
        while self._made:
            undone.append(self.undo_last())
        return undone[::-1]

    def give_up_originals(self) -> None:
        """Apply again, without originals, the steps that keep some; afterwards nothing is undone.

        Raises:
            Exception: whatever a variant raises.
        """
        if not self.freed:
            return
        steps = self.undo()
        self._final = True
        for step in steps:
            self.apply(step.optimization, step.variant, keep=not step.applied.freed)

    @property
    def final(self) -> bool:
        """Whether originals were given up."""
        return self._final
