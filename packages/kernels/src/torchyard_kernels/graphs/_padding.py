"""How arguments that no bucket holds exactly are made to fit one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from torch import Tensor

from torchyard import arguments

__all__ = ["Padding"]


@dataclass(frozen=True)
class Padding:
    """Which dimensions grow to the next bucket, and which of the results shrink again.

    A function that is padded must give the same for the rows that are there, whatever stands in
    those that are not: nothing checks this but ``Graph.check``.

    Attributes:
        inputs: position of a tensor argument -> its dimension that is padded at the end.
        outputs: position of a result -> its dimension that is cut to the padded arguments' length.
        value: what is written into the padding.
    """

    inputs: Mapping[int, int]
    outputs: Mapping[int, int] = field(default_factory=dict)
    value: float = 0.0

    def __post_init__(self) -> None:
        of = "Padding"
        for name in ("inputs", "outputs"):
            where = arguments.mapping(
                of, name, getattr(self, name), "a mapping of positions to dimensions"
            )
            checked = {
                arguments.integer(of, f"{name}[{at!r}] (the position)", at, least=0): (
                    arguments.integer(of, f"{name}[{at!r}]", dim)
                )
                for at, dim in where.items()
            }
            object.__setattr__(self, name, checked)
        # What hides the padding may well be NaN or an infinity.
        value: object = self.value
        if not isinstance(value, float):
            object.__setattr__(self, "value", arguments.number(of, "value", value))

    def length(self, given: tuple[Tensor, ...]) -> int | None:
        """Return the length that the arguments share; None where they do not."""
        lengths = {
            given[at].shape[dim]
            for at, dim in self.inputs.items()
            if at < len(given) and -given[at].dim() <= dim < given[at].dim()
        }
        return lengths.pop() if len(lengths) == 1 else None

    def fits(self, given: tuple[Tensor, ...], held: tuple[Tensor, ...]) -> bool:
        """Return whether the arguments fit into a bucket's once they are padded."""
        if len(given) != len(held):
            return False
        for at, (mine, theirs) in enumerate(zip(given, held, strict=True)):
            if mine.dtype != theirs.dtype or mine.dim() != theirs.dim():
                return False
            grows = self.inputs.get(at)
            for dim, (size, room) in enumerate(zip(mine.shape, theirs.shape, strict=True)):
                if size != room and not (
                    grows is not None and dim == grows % mine.dim() and size < room
                ):
                    return False
        return True

    def write(self, at: int, given: Tensor, held: Tensor) -> None:
        """Copy an argument to its place, and fill what is behind it."""
        dim = self.inputs.get(at)
        if dim is None or given.shape == held.shape:
            held.copy_(given)
            return
        length = given.shape[dim]
        held.narrow(dim, 0, length).copy_(given)
        held.narrow(dim, length, held.shape[dim] - length).fill_(self.value)

    def cut(self, at: int, result: Tensor, length: int) -> Tensor:
        """Return a result without what came of the padding."""
        dim = self.outputs.get(at)
        return result if dim is None else result.narrow(dim, 0, length)
