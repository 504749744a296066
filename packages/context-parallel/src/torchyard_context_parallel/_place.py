"""The ranks that hold a sequence, and this rank's place among them."""

from __future__ import annotations

from dataclasses import dataclass

import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh


@dataclass(frozen=True, slots=True)
class Place:
    """A rank's place in the mesh.

    Attributes:
        groups: the group of this rank along each dimension of the mesh.
    """

    groups: tuple[dist.ProcessGroup, ...]

    @classmethod
    def of(cls, mesh: DeviceMesh | dist.ProcessGroup) -> Place:
        """Return this rank's place in a mesh, or in a group, which is a mesh of one dimension.

        Raises:
            TypeError: it is neither.
            ValueError: this rank is not in it.
        """
        if isinstance(mesh, dist.ProcessGroup):
            groups: tuple[dist.ProcessGroup, ...] = (mesh,)
            if mesh.rank() < 0:
                raise ValueError("mesh: expected a group that this rank is in, got one without it")
        elif isinstance(mesh, DeviceMesh):
            if mesh.get_coordinate() is None:
                raise ValueError(f"mesh: expected one that this rank is in, got {mesh}")
            groups = tuple(mesh.get_group(dimension) for dimension in range(mesh.ndim))
        else:
            raise TypeError(
                f"mesh: expected a DeviceMesh or a ProcessGroup, got {type(mesh).__name__}"
            )
        return cls(groups)

    def check_dimensions(self, dimensions: int) -> None:
        """Check that the mesh has as many dimensions as a schedule needs."""
        if len(self.groups) != dimensions:
            raise ValueError(
                f"mesh: expected {dimensions} dimension{'s' if dimensions > 1 else ''} for this "
                f"schedule, got {len(self.groups)}; take a sub-mesh by the names of its dimensions"
            )

    @property
    def ranks(self) -> int:
        """How many ranks there are."""
        count = 1
        for group in self.groups:
            count *= group.size()
        return count

    @property
    def part(self) -> int:
        """This rank's number, in the mesh's order: the part of a sharding that it holds."""
        number = 0
        for group in self.groups:
            number = number * group.size() + group.rank()
        return number
