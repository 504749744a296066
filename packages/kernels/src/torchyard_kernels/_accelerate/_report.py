"""What accelerate did to a model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torchyard import TorchyardError

__all__ = ["AccelerateError", "Accelerated", "Change", "Gain", "Report", "Skipped"]


class AccelerateError(TorchyardError, ValueError):
    """A model cannot be accelerated, or given back, as asked; the message says why."""


@dataclass(frozen=True, slots=True)
class Change:
    """A module that computes otherwise than before.

    Attributes:
        name: where in the model.
        kind: what it became.
        bytes_before, bytes_after: of its weights; of weights that something else holds too, the
            latter come on top.
        note: what there is to know; mostly empty.
    """

    name: str
    kind: str
    bytes_before: int
    bytes_after: int
    note: str = ""


@dataclass(frozen=True, slots=True)
class Skipped:
    """A module that was left as it is, although its kind is one that is replaced.

    Attributes:
        name: where in the model.
        reason: why.
    """

    name: str
    reason: str


@dataclass(frozen=True, slots=True)
class Gain:
    """One row through the layers of the commonest shape, before and after.

    Attributes:
        name: one of these layers.
        layers: how many took turns, so that their weights came from memory as far as they exceed
            the caches.
        before, after: seconds per layer, the medians of runs that alternate.
    """

    name: str
    layers: int
    before: float
    after: float

    @property
    def times(self) -> float:
        """How many times as fast the layers became."""
        return self.before / self.after


@dataclass(frozen=True, slots=True)
class Report:
    """What was changed, what was not, and what it brought.

    Attributes:
        weights: the format.
        changes, skipped: in the model's order.
        unused: what of accelerate a module is no part of, and why: products at once, decoding in
            few calls, a cache that grows in place.
        gain: None where nothing was changed or nothing was to be measured.
    """

    weights: str
    changes: tuple[Change, ...]
    skipped: tuple[Skipped, ...]
    gain: Gain | None
    unused: tuple[Skipped, ...] = ()

    @property
    def bytes_before(self) -> int:
        """Bytes of the weights as they were."""
        return sum(change.bytes_before for change in self.changes)

    @property
    def bytes_after(self) -> int:
        """Bytes of the packed weights."""
        return sum(change.bytes_after for change in self.changes)

    def render(self) -> str:
        """Return the report as text."""
        kinds: dict[str, int] = {}
        for change in self.changes:
            kinds[change.kind] = kinds.get(change.kind, 0) + 1
        lines = [f"{count} x {kind}" for kind, count in kinds.items()] or ["nothing changed"]
        lines.append(f"weights: {self.bytes_before:,} bytes before, {self.bytes_after:,} after")
        if self.gain is not None:
            lines.append(
                f"{self.gain.name}, one row: {self.gain.times:.2f} times as fast "
                f"({self.gain.layers} such layers taking turns)"
            )
        lines += [f"{change.name}: {change.note}" for change in self.changes if change.note]
        lines += [f"{skipped.name}: left as it is: {skipped.reason}" for skipped in self.skipped]
        lines += [f"{one.name or 'the model'}: {one.reason}" for one in self.unused]
        return "\n".join(lines)


class Accelerated:
    """A model's report, and the way back.

    Attributes:
        report: what was done.
    """

    def __init__(self, report: Report, undo: Callable[[], None] | None) -> None:
        self.report = report
        self._undo = undo

    def undo(self) -> None:
        """Put the very parameters back that were there, with the numbers that the model has now.

        Raises:
            AccelerateError: done already; the originals were not kept; a rounded weight was
                written; or a forward was put over one of ours. Nothing was put back.
        """
        if self._undo is None:
            raise AccelerateError(
                "accelerate: undo: there is nothing to put back: it was done already, or the "
                "originals were not kept (keep_originals=False)"
            )
        self._undo()
        self._undo = None
