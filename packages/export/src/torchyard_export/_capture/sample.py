"""Inputs of other sizes, drawn like the example's."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
from torch import Tensor

from torchyard_export._capture.dimension import Dimension, Dynamic
from torchyard_export._tree import flatten, packed_in, structure, unflatten

Sizes: TypeAlias = Mapping[str, int]
# (sizes by dimension, generator) -> arguments by name.
Draw: TypeAlias = Callable[[dict[str, int], torch.Generator], Mapping[str, Any]]
Bounds: TypeAlias = Mapping[str, tuple[int | str, int | str]]

# More corners than this are thinned: the first and last, and each dimension alone at its ends.
_CORNERS = 8


@dataclass(frozen=True, slots=True)
class Sampler:
    """Draw arguments for given sizes.

    A floating element is one of the example's, times a factor in 0.5..1: signs and magnitudes stay
    what the model expects. An integer or boolean is one of the example's, unless ``values`` gives
    its range. Lengths of a packed sequence are between 1 and its time, and one of them is its time.

    Attributes:
        arguments: the example.
        dynamic: which axes have which dimension.
        values: path of an integer input -> its least and greatest value; a name is a dimension.
        custom: draws instead of all this.
    """

    arguments: Mapping[str, Any]
    dynamic: Dynamic
    values: Bounds
    custom: Draw | None = None

    def __post_init__(self) -> None:
        known = [name for name, leaf in flatten(dict(self.arguments)) if isinstance(leaf, Tensor)]
        for path, bounds in self.values.items():
            if path not in known:
                raise ValueError(f"values: expected tensors ({', '.join(known)}), got {path!r}")
            for bound in bounds:
                if isinstance(bound, str) and bound not in self.dynamic.dimensions:
                    raise ValueError(f"values: {path}: no dimension is named {bound!r}")

    def draw(self, sizes: Sizes, seed: int) -> dict[str, Any]:
        """Return arguments of the sizes; the same for the same seed."""
        generator = torch.Generator().manual_seed(seed)
        if self.custom is not None:
            return dict(self.custom(dict(sizes), generator))
        leaves: list[Any] = []
        example = flatten(dict(self.arguments))
        ends = {f"{path}.lengths" for path, _ in packed_in(dict(self.arguments))}
        for (path, leaf), named in zip(example, self.dynamic.leaves, strict=True):
            if path in ends:
                count = sizes[named[0]] if named else len(leaf)
                leaves.append(self._lengths(path, count, len(leaves[-1]), generator))
                continue
            leaves.append(self._leaf(path, leaf, named, sizes, generator))
        drawn = unflatten(structure(dict(self.arguments)), leaves)
        return dict(drawn)

    def _lengths(self, path: str, count: int, time: int, generator: torch.Generator) -> Tensor:
        least = self.values.get(path, (1, time))[0]
        low = min(least, time) if isinstance(least, int) else 1
        drawn = torch.randint(low, time + 1, (count,), generator=generator)
        drawn[int(torch.randint(count, (), generator=generator))] = time
        return drawn

    def _leaf(
        self, path: str, leaf: Any, named: dict[int, str], sizes: Sizes, generator: torch.Generator
    ) -> Any:
        if not isinstance(leaf, Tensor):
            return leaf
        shape = [sizes[named[axis]] if axis in named else n for axis, n in enumerate(leaf.shape)]
        if path in self.values:
            low, high = (
                sizes[bound] if isinstance(bound, str) else bound for bound in self.values[path]
            )
            drawn = torch.randint(low, high + 1, shape, generator=generator)
            return drawn.to(dtype=leaf.dtype, device=leaf.device)
        known = leaf.detach().cpu().flatten()
        if not known.numel():
            return leaf.new_zeros(shape)
        count = int(torch.Size(shape).numel())
        chosen = known[torch.randint(known.numel(), (count,), generator=generator)]
        if leaf.is_floating_point():
            chosen = chosen * (0.5 + 0.5 * torch.rand(count, generator=generator)).to(leaf.dtype)
        return chosen.reshape(shape).to(leaf.device)


def recorded_sizes(dynamic: Dynamic, arguments: Mapping[str, Any]) -> dict[str, int]:
    """Return a size for each dimension that a program is recorded at.

    No size is 0 or 1, and none is another dimension's or that of an axis that stays: equal sizes,
    and 1, would let the recording conclude what does not hold in general.
    """
    leaves = [leaf for _, leaf in flatten(dict(arguments))]
    taken = {
        size
        for leaf, named in zip(leaves, dynamic.leaves, strict=True)
        if isinstance(leaf, Tensor)
        for axis, size in enumerate(leaf.shape)
        if axis not in named
    }
    sizes: dict[str, int] = {}
    for name, dimension in dynamic.dimensions.items():
        low, high = max(dimension.min, 2), dimension.max if dimension.max is not None else 1 << 30
        # Odd sizes from 5 on first: factors of two hide in reshapes.
        wanted = itertools.chain(
            range(max(low, 5) | 1, max(low, 5) + 400, 2), range(low, low + 400)
        )
        fitting = [size for size in wanted if low <= size <= high]
        size = next((size for size in fitting if size not in taken), fitting[0])
        sizes[name] = size
        taken.add(size)
    return sizes


def trial_sizes(
    dimensions: Iterable[Dimension], recorded: Sizes, *, count: int, seed: int
) -> list[dict[str, int]]:
    """Return the sizes to try: recorded ones, corners of the ranges, and ``count`` drawn."""
    known = list(dimensions)
    if not known:
        return [{}]
    names = [dimension.name for dimension in known]
    ends = [(dimension.min, dimension.trial_max) for dimension in known]
    corners = [dict(zip(names, corner, strict=True)) for corner in itertools.product(*ends)]
    if len(corners) > _CORNERS:
        alone = [
            {**recorded, name: end} for name, pair in zip(names, ends, strict=True) for end in pair
        ]
        corners = [corners[0], corners[-1], *alone]
    chooser = random.Random(seed)
    drawn = [
        {
            # Uniform in the logarithm, so that short sequences are drawn as often as long ones.
            d.name: min(
                d.trial_max,
                max(d.min, round(d.min * (d.trial_max / d.min) ** chooser.random())),
            )
            for d in known
        }
        for _ in range(count)
    ]
    unique: dict[tuple[int, ...], dict[str, int]] = {}
    for sizes in [dict(recorded), *corners, *drawn]:
        unique.setdefault(tuple(sizes[name] for name in names), sizes)
    return list(unique.values())
