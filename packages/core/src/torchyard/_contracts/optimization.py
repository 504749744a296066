"""What a plugin offers to do to a whole model, for :func:`torchyard.optimize` to try."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from torchyard import arguments

if TYPE_CHECKING:
    from torch import nn

__all__ = ["Applied", "Optimization", "OptimizationStage", "Variant"]


class OptimizationStage(StrEnum):
    """When an optimization is tried: one stage after the other, on what the earlier ones left."""

    ATTENTION = "attention"
    WEIGHTS = "weights"
    FUNCTIONS = "functions"
    COMPILATION = "compilation"
    EXECUTION = "execution"
    REUSE = "reuse"


@dataclass(frozen=True, slots=True)
class Applied:
    """A variant that is in use.

    Attributes:
        undo: leaves the model as it was, to the very parameters and attributes.
        freed: bytes of weights that are no longer the model's, kept for ``undo`` alone; 0 where the
            originals were given up.
        reset: forgets what earlier calls computed, so that equal calls can be timed.
        notes: what a user should know.
        held: bytes that calls read besides the model's tensors, such as packed copies of weights
            that stay.
    """

    undo: Callable[[], None]
    freed: int = 0
    reset: Callable[[], None] | None = None
    notes: tuple[str, ...] = ()
    held: int = 0

    def __post_init__(self) -> None:
        arguments.function("Applied", "undo", self.undo)
        arguments.integer("Applied", "freed", self.freed, least=0)
        arguments.integer("Applied", "held", self.held, least=0)
        if self.reset is not None:
            arguments.function("Applied", "reset", self.reset)
        arguments.sequence("Applied", "notes", self.notes, arguments.text)


@dataclass(frozen=True, slots=True)
class Variant:
    """One way in which an optimization may be applied.

    Attributes:
        name: unique among those of the optimization; a plan finds the variant by it.
        apply: changes the model in place; called with whether originals are kept, so that ``undo``
            can put them back. Where it raises, the model is as it was.
        lossy: whether it rounds values to fewer bits than the model's; tried only with a tolerance.
    """

    name: str
    apply: Callable[[bool], Applied]
    lossy: bool = False

    def __post_init__(self) -> None:
        arguments.text("Variant", "name", self.name)
        arguments.function("Variant", "apply", self.apply)
        arguments.boolean("Variant", "lossy", self.lossy)


@dataclass(frozen=True, slots=True)
class Optimization:
    """Something that a plugin can do to a model.

    Attributes:
        name: unique among all plugins', in lower case.
        stage: when it is tried.
        summary: what it does, in a few words.
        variants: called with the model; returns what may be tried, of which one at most is kept.
            Changes nothing, and raises :class:`torchyard.optimization.NotApplicableError` with the
            reason where there is nothing to try.
    """

    name: str
    stage: OptimizationStage
    summary: str
    variants: Callable[[nn.Module], Sequence[Variant]]

    def __post_init__(self) -> None:
        arguments.text("Optimization", "name", self.name)
        arguments.instance("Optimization", "stage", self.stage, OptimizationStage)
        arguments.text("Optimization", "summary", self.summary)
        arguments.function("Optimization", "variants", self.variants)
