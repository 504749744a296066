"""Where a program's captured tensors are read, for the gradients of their elements."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from torchyard_cpu._programs.binding import Binding, BoundScore, CapturedShape
from torchyard_cpu._programs.gradient import DifferentiatedScore
from torchyard_cpu._programs.graph import Node, float_bits

__all__ = ["BoundGradient", "BoundSite", "bind_gradient"]


@dataclass(frozen=True, slots=True)
class BoundSite:
    """Where pairs add to a captured tensor's gradient.

    Attributes:
        tensor: its number.
        form: ``one``, ``affine`` or ``scatter``, as the native ``SiteForm``.
        offset: the step that says where in the contiguous gradient.
        extra: what the form says it is.
        weight: the step that is d modified / d element, or RAW.
    """

    tensor: int
    form: str
    offset: int
    extra: int
    weight: int


@dataclass(frozen=True, slots=True)
class BoundGradient:
    """A program with its derivatives: a slope, and sites of captured tensors."""

    score: BoundScore
    slope: int
    sites: tuple[BoundSite, ...]


def bind_gradient(
    differentiated: DifferentiatedScore,
    captured: Sequence[CapturedShape],
    sizes: tuple[int, int, int, int],
) -> BoundGradient:
    """Choose native steps for a program and its derivatives; see ``bind``."""
    graph = differentiated.graph
    binding = Binding(captured, sizes)
    binding.take(graph)
    if differentiated.slope is None:
        slope = binding.constant(float_bits(0.0), "float32")
    else:
        slope = binding.values[differentiated.slope]
    sites = tuple(
        _site(binding, graph.nodes[site.gather], binding.values[site.weight])
        for site in differentiated.sites
    )
    score = BoundScore(tuple(binding.steps), binding.values[graph.result])
    return BoundGradient(score, slope, sites)


def _site(binding: Binding, node: Node, weight: int) -> BoundSite:
    """Return where pairs add what they owe to the element that a node reads."""
    sizes = binding.captured[node.data].sizes
    strides = [math.prod(sizes[dimension + 1 :]) for dimension in range(len(sizes))]
    offset = binding.offset([binding.values[arg] for arg in node.args], sizes, strides)
    base, stride = binding.affine(offset)
    if base is None:
        wide = int(binding.lanes(offset) == "l")
        return BoundSite(node.data, "scatter", offset, wide, weight)
    form = "one" if stride == 0 else "affine"
    return BoundSite(node.data, form, binding.lane(base, "l"), stride, weight)
