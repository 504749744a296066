"""``explain``: of each compiled graph whether it was found in a cache, and why not."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import PurePath
from typing import Any, Final

from torchyard_cache import torch_compat
from torchyard_cache.artifacts._process import LOADED

__all__ = ["CompiledGraph", "Explanation", "Lookup", "explain", "graph_names"]


# Group of torch's counters -> the one that counts what its cache was not asked for.
_BYPASSES: Final = {"aot_autograd": "autograd_cache_bypass", "inductor": "fxgraph_cache_bypass"}


class Lookup(StrEnum):
    """What came of looking a graph up."""

    HIT = "hit"
    MISS = "miss"
    BYPASS = "bypass"


@dataclass(frozen=True, slots=True)
class CompiledGraph:
    """One graph that torch compiled, or found compiled, in this process.

    Attributes:
        graph: torch's number of it, such as ``0/1``.
        function: name, file and line of what was compiled.
        lookup: what came of looking it up.
        reason: why it was no hit; empty for a hit.
        seconds: from the call until the graph could run.
        backend_seconds: of them those after Dynamo: what a hit saves.
    """

    graph: str
    function: str
    lookup: Lookup
    reason: str
    seconds: float
    backend_seconds: float


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why a start was cold or warm.

    Attributes:
        graphs: in the order of their compilation.
        bundles: how many were loaded before.
        skipped: artifacts of bundles that were left out, each with its reason.
        bypasses: why torch did not look at all, and how often.
    """

    graphs: tuple[CompiledGraph, ...]
    bundles: int
    skipped: tuple[str, ...]
    bypasses: dict[str, int]

    def count(self, lookup: Lookup) -> int:
        """Return how many graphs had an outcome."""
        return sum(graph.lookup is lookup for graph in self.graphs)

    @property
    def seconds(self) -> float:
        """Of all graphs."""
        return sum(graph.seconds for graph in self.graphs)

    def to_json(self) -> str:
        """Return it as JSON."""
        return json.dumps(asdict(self), indent=1)

    def __str__(self) -> str:
        counts = ", ".join(f"{self.count(lookup)} {lookup}" for lookup in Lookup)
        head = (
            f"{len(self.graphs)} graphs, {self.seconds:.1f} s: {counts}; {self.bundles} bundle(s)"
        )
        lines = [f"{head} loaded"]
        for graph in self.graphs:
            why = f": {graph.reason}" if graph.reason else ""
            lines.append(
                f"{graph.graph:>6} {graph.lookup:6} {graph.seconds:6.1f} s  {graph.function}{why}"
            )
        return "\n".join(lines)


def explain() -> Explanation:
    """Say of each graph that was compiled in this process whether it was found, and why not.

    Raises:
        CacheError: this torch keeps no record of compilations.
    """
    bypasses = _bypasses(torch_compat.compile_counters())
    graphs = [_graph(event, bypasses) for event in torch_compat.compile_events()]
    return Explanation(
        tuple(graph for graph in graphs if graph is not None),
        LOADED.bundles,
        tuple(LOADED.skipped),
        bypasses,
    )


def graph_names() -> dict[tuple[str, str], str]:
    """Return the graph of each artifact of this process, by kind and key, as far as it is known.

    Names have no folders: a bundle goes to other machines.
    """
    functions = {
        str(event.get("compile_id")): (
            f"{event.get('co_name')} ({PurePath(str(event.get('co_filename'))).name}"
            f":{event.get('co_firstlineno')})"
        )
        for event in torch_compat.compile_events()
        if event.get("co_name")
    }
    return {
        name: f"{number} {functions.get(number, '')}".rstrip()
        for name, number in torch_compat.graphs_of_artifacts().items()
    }


def _graph(event: Any, bypasses: dict[str, int]) -> CompiledGraph | None:
    if event.get("is_runtime") or event.get("graph_op_count") is None:
        return None
    hits, misses = (
        sum(
            int(event.get(f"{cache}_local_cache_{outcome}_count") or 0)
            + int(event.get(f"{cache}_remote_cache_{outcome}_count") or 0)
            for cache in ("aotautograd", "inductor_fx")
        )
        for outcome in ("hit", "miss")
    )
    seconds, backend = (
        float(event.get(name) or 0.0)
        for name in ("entire_frame_compile_time_s", "backend_compile_time_s")
    )
    lookup = Lookup.MISS if misses else Lookup.HIT if hits else Lookup.BYPASS
    function = f"{event.get('co_name')} ({event.get('co_filename')}:{event.get('co_firstlineno')})"
    reason = "" if lookup is Lookup.HIT else _reason(lookup, event, bypasses)
    return CompiledGraph(str(event.get("compile_id")), function, lookup, reason, seconds, backend)


def _reason(lookup: Lookup, event: Any, bypasses: dict[str, int]) -> str:
    if lookup is Lookup.BYPASS:
        why = "; ".join(bypasses) or "the backend has no cache, or it is switched off"
        return f"torch did not look it up: {why}"
    guard = event.get("recompile_reason")
    if guard:
        return f"compiled again, since a guard failed: {guard}"
    if not LOADED.bundles:
        return "no bundle was loaded, and the folder of torch's cache has none"
    if LOADED.skipped and not LOADED.artifacts:
        return f"no artifact of the bundle fits: {LOADED.skipped[0].partition(': ')[2]}"
    return (
        "no artifact has its key: the source, shapes, dtypes, torch's configuration or the "
        "values that it was specialised for are others than those that were saved"
    )


def _bypasses(counters: Any) -> dict[str, int]:
    """Return why torch's caches were passed by, from its counters."""
    return {
        f"{group} cache bypassed": number
        for group, name in _BYPASSES.items()
        if (number := counters.get(group, {}).get(name, 0))
    }
