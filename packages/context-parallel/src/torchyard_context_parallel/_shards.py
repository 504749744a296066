"""A model's inputs and outputs: split into the ranks' parts, and joined again."""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh

from torchyard import arguments
from torchyard_context_parallel._agreement import agree, device_of
from torchyard_context_parallel._methods.exchange import all_parts
from torchyard_context_parallel._place import Place
from torchyard_context_parallel._sharding import Sharding, checked_dimension
from torchyard_context_parallel._validation import check_values


def shard(
    whole: Tensor, sharding: Sharding, *, mesh: DeviceMesh | dist.ProcessGroup, dim: int = 1
) -> Tensor:
    """Return this rank's part of a tensor that every rank holds whole; differentiable.

    Args:
        whole: the whole sequence in dimension ``dim``: token ids, embeddings, labels.
        sharding: who holds which positions.
        mesh: as context_parallel_attention takes it, of one or two dimensions.
        dim: the sequence's dimension.
    """
    dim = _checked("shard", "whole", whole, sharding, dim)
    return sharding.take(whole, Place.of(mesh).part, dim)


def unshard(
    part: Tensor, sharding: Sharding, *, mesh: DeviceMesh | dist.ProcessGroup, dim: int = 1
) -> Tensor:
    """Return the whole of a tensor of which each rank holds a part, on every rank.

    Not differentiable: reduce a loss of each rank's own positions instead.

    Raises:
        ValueError: a gradient would be lost, or the length is not this rank's part's. On every rank
            where it is so on one.
        torchyard_collectives.CallMismatchError: ranks give different arguments; names them.
    """
    place = Place.of(mesh)
    refusal: Exception | None = None
    fields: dict[str, object] = {}
    try:
        dim = _checked("unshard", "part", part, sharding, dim)
        check_values("unshard", "part", part)
        _check_part(part, sharding, place, dim)
        rest = [size for number, size in enumerate(part.shape) if number != dim % part.ndim]
        fields = {
            "dtype": part.dtype,
            "shape without the sequence": rest,
            "dim": dim % part.ndim,
            "sharding": sharding.text,
        }
    except Exception as error:
        refusal = error
    agree(place, "unshard", fields, refusal=refusal, device=device_of(part))
    dim %= part.ndim
    parts = {place.part: part}
    stride = 1
    # Dimension by dimension: first the parts of the neighbours in the last, then whole rows.
    for group in reversed(place.groups):
        known = sorted(parts)
        base = known[0] - group.rank() * stride
        for number in known:
            lengths = [
                sharding.lengths[base + peer * stride + number - known[0]]
                for peer in range(group.size())
            ]
            for peer, tensor in enumerate(all_parts(group, parts[number], lengths, dim)):
                parts[base + peer * stride + number - known[0]] = tensor
        stride *= group.size()
    return sharding.join([parts[number] for number in sorted(parts)], dim)


def position_ids(
    sharding: Sharding,
    *,
    mesh: DeviceMesh | dist.ProcessGroup,
    device: torch.device | str | None = None,
) -> Tensor:
    """Return the positions of this rank's part: int64 [1, length], as models of text take them."""
    arguments.instance("position_ids", "sharding", sharding, Sharding)
    if device is not None:
        device = arguments.device("position_ids", "device", device)
    return sharding.positions(Place.of(mesh).part, device)[None]


def _checked(of: str, name: str, tensor: Tensor, sharding: object, dim: object) -> int:
    """Return the dimension, counted from the front."""
    arguments.tensor(of, name, tensor)
    arguments.instance(of, "sharding", sharding, Sharding)
    return checked_dimension(of, name, tensor, dim)


def _check_part(part: Tensor, sharding: Sharding, place: Place, dim: int) -> None:
    if part.requires_grad and torch.is_grad_enabled():
        raise ValueError(
            "part: expected a tensor that needs no gradient, since none comes back from the other "
            "ranks; detach it, or compute the loss on each rank's part and reduce that"
        )
    if len(sharding.parts) != place.ranks:
        raise ValueError(
            f"sharding: expected {place.ranks} parts, one for each rank of the mesh, got "
            f"{len(sharding.parts)}"
        )
    own = sharding.lengths[place.part]
    if part.shape[dim] != own:
        raise ValueError(
            f"part: expected {own} positions in dimension {dim}, got shape {list(part.shape)}"
        )
