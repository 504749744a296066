"""What was compiled: regions, and each compilation of them."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field

__all__ = ["Compilation", "Region", "Report"]


@dataclass(frozen=True, slots=True)
class Compilation:
    """One time that torch compiled a region's function.

    Attributes:
        graph: torch's number of it, such as ``0/1``.
        seconds: that it took.
        reason: the guard that failed, where it was compiled again; empty the first time.
    """

    graph: str
    seconds: float
    reason: str


@dataclass(slots=True)
class Region:
    """Blocks of one kind, which share what is compiled.

    Attributes:
        kind: the class's name.
        location: file and line of its ``forward``.
        names: of the blocks in the model.
        compilations: of the kind's function, in their order.
    """

    kind: str
    location: str
    names: tuple[str, ...]
    compilations: list[Compilation] = field(default_factory=list)

    @property
    def recompilations(self) -> int:
        """How often it was compiled again."""
        return max(0, len(self.compilations) - 1)

    @property
    def seconds(self) -> float:
        """Of all compilations."""
        return sum(item.seconds for item in self.compilations)


@dataclass(slots=True)
class Report:
    """What ``compile_regions`` did to a model, and what became of it.

    Attributes:
        regions: the most blocks first.
        graph_breaks: why graphs were broken, and how often, in all of the process since then.
    """

    regions: list[Region]
    graph_breaks: dict[str, int] = field(default_factory=dict)

    @property
    def seconds(self) -> float:
        """That compilation took."""
        return sum(region.seconds for region in self.regions)

    def to_json(self) -> str:
        """Return it as JSON."""
        return json.dumps(asdict(self), indent=1)

    def __str__(self) -> str:
        lines = []
        for region in self.regions:
            lines.append(
                f"{region.kind} x {len(region.names)}: {len(region.compilations)} compilation(s), "
                f"{region.seconds:.1f} s ({region.location})"
            )
            lines += [
                f"  {item.graph} {item.seconds:.1f} s: again, since {item.reason}"
                for item in region.compilations
                if item.reason
            ]
        lines += [f"graph break x {n}: {why}" for why, n in self.graph_breaks.items()]
        return "\n".join(lines)
