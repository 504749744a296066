"""Nodes of a graph that can be calculated with."""

from __future__ import annotations

from dataclasses import dataclass

from torchyard_programs._graph.graph import Graph

__all__ = ["Term"]


@dataclass(frozen=True, slots=True)
class Term:
    """A node. Operators add nodes of its dtype; plain numbers become constants of it."""

    graph: Graph
    number: int

    @property
    def dtype(self) -> str:
        return self.graph.nodes[self.number].dtype

    def like(self, value: float | Term) -> Term:
        """Return a number as a constant of this dtype; a term as it is."""
        if isinstance(value, Term):
            return value
        return Term(self.graph, self.graph.constant(value, self.dtype))

    def of(self, op: str, *others: Term | float, dtype: str | None = None) -> Term:
        """Return an operation on this and others."""
        args = (self.number, *(self.like(other).number for other in others))
        return Term(self.graph, self.graph.add(op, args, dtype or self.dtype))

    def call(self, name: str, *others: Term | float, dtype: str | None = None) -> Term:
        """Return a function of the device library of this and others."""
        args = (self.number, *(self.like(other).number for other in others))
        return Term(self.graph, self.graph.add("call", args, dtype or self.dtype, name))

    def to(self, dtype: str) -> Term:
        return Term(self.graph, self.graph.cast(self.number, dtype))

    def where(self, yes: Term | float, no: Term | float) -> Term:
        """Return one value where this truth value holds, the other elsewhere.

        At least one of the two is a term.
        """
        first = yes if isinstance(yes, Term) else no
        assert isinstance(first, Term)
        args = (self.number, first.like(yes).number, first.like(no).number)
        return Term(self.graph, self.graph.add("where", args, first.dtype))

    def _is(self, value: float) -> bool:
        return self.graph.is_constant(self.number, value)

    def __add__(self, other: Term | float) -> Term:
        return self.of("add", other)

    def __sub__(self, other: Term | float) -> Term:
        return self.of("sub", other)

    def __rsub__(self, other: float) -> Term:
        return self.like(other) - self

    def __mul__(self, other: Term | float) -> Term:
        other = self.like(other)
        if other._is(1.0):
            return self
        return other if self._is(1.0) else self.of("mul", other)

    def __truediv__(self, other: Term | float) -> Term:
        return self.of("div", other)

    def __rtruediv__(self, other: float) -> Term:
        return self.like(other) / self

    def __neg__(self) -> Term:
        return self.of("neg")

    def __abs__(self) -> Term:
        return self.of("abs")

    def __lt__(self, other: Term | float) -> Term:
        return self.of("lt", other, dtype="bool")

    def __le__(self, other: Term | float) -> Term:
        return self.of("le", other, dtype="bool")

    def is_equal(self, other: Term | float) -> Term:
        """Return whether the values are equal, which NaN never is."""
        return self.of("eq", other, dtype="bool")

    def differs(self, other: Term | float) -> Term:
        return self.of("ne", other, dtype="bool")

    def __and__(self, other: Term) -> Term:
        return self.of("and", other)

    def __or__(self, other: Term) -> Term:
        return self.of("or", other)
