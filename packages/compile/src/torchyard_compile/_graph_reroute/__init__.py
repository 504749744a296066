"""Attention and selection in a compiled graph, by what the registry chooses; docs/reroute.md."""

from __future__ import annotations

from torchyard_compile._graph_reroute._backend import GraphReroute

__all__ = ["GraphReroute"]
