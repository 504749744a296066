"""Padding of arguments to the shapes of a captured bucket."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from torch import Tensor

from torchyard import arguments

__all__ = ["Padding"]


@dataclass(frozen=True)
class Padding:
    """Which dimensions of arguments are padded to the next bucket, and which of results are cut.

    The results for the real rows must not depend on the values in the padding; only
    ``Graph.check`` checks that.

    Attributes:
        inputs: position of a tensor argument -> its dimension, which is padded at the end.
        outputs: position of a result -> its dimension, which is cut to the arguments' length.
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
        # NaN and infinities are allowed.
        value: object = self.value
        if not isinstance(value, float):
            object.__setattr__(self, "value", arguments.number(of, "value", value))

    def length(self, given: tuple[Tensor, ...]) -> int | None:
        """Return the length that the padded arguments have in common; None where they differ."""
        lengths = {
            given[at].shape[dim]
            for at, dim in self.inputs.items()
            if at < len(given) and -given[at].dim() <= dim < given[at].dim()
        }
        return lengths.pop() if len(lengths) == 1 else None

    def fits(self, given: tuple[Tensor, ...], static: tuple[Tensor, ...]) -> bool:
        """Return whether the arguments have the shapes of a bucket's once they are padded."""
        if len(given) != len(static):
            return False
        for at, (mine, theirs) in enumerate(zip(given, static, strict=True)):
            if mine.dtype != theirs.dtype or mine.dim() != theirs.dim():
                return False
            grows = self.inputs.get(at)
            for dim, (size, room) in enumerate(zip(mine.shape, theirs.shape, strict=True)):
                if size != room and not (
                    grows is not None and dim == grows % mine.dim() and size < room
                ):
                    return False
        return True

    def write(self, at: int, given: Tensor, static: Tensor) -> None:
        """Copy an argument into its static tensor, and fill the padding."""
        dim = self.inputs.get(at)
        if dim is None or given.shape == static.shape:
            static.copy_(given)
            return
        length = given.shape[dim]
        static.narrow(dim, 0, length).copy_(given)
        static.narrow(dim, length, static.shape[dim] - length).fill_(self.value)

    def cut(self, at: int, result: Tensor, length: int) -> Tensor:
        """Return a result without the rows that the padding produced."""
        dim = self.outputs.get(at)
        return result if dim is None else result.narrow(dim, 0, length)
