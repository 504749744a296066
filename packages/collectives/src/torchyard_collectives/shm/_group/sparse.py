"""all_reduce of sparse tensors: indices and values go to all ranks, which add them up alike."""

from __future__ import annotations

import torch
from torch import Tensor

from torchyard_collectives._torch_compat import is_view
from torchyard_collectives.shm._engines.engine import Engine
from torchyard_collectives.shm._group.tensors import LINEAR, Reduction

__all__ = ["all_reduce_sparse"]

_AVERAGE = 1
# Halves are added in float32 and rounded once, as dense ones are.
_WIDER = {torch.float16: torch.float32, torch.bfloat16: torch.float32}


def all_reduce_sparse(
    engine: Engine, tensor: Tensor, reduction: Reduction, ranks: int, milliseconds: int
) -> None:
    """Combine a sparse COO tensor of all ranks, in place; it is coalesced afterwards.

    Raises:
        TypeError: another layout, or something else than a sum or an average.
        ValueError: ranks have tensors of different shapes or numbers of sparse dimensions.
    """
    if tensor.layout is not torch.sparse_coo:
        raise TypeError(
            f"all_reduce: expected a dense or a sparse COO tensor, got {tensor.layout}; convert it "
            "by to_sparse_coo() or to_dense()"
        )
    if reduction.number not in LINEAR:
        raise TypeError(
            "all_reduce: expected a sum or an average of sparse tensors, got operation "
            f"{reduction.number}; call to_dense() on them first"
        )
    own = tensor.detach().coalesce()
    if is_view(tensor):
        # torch.distributed hands on the view_as_real of a complex tensor: what is written into it
        # does not come back.
        raise TypeError(
            "all_reduce: expected a sparse tensor that is no view; of complex numbers, call "
            "group.allreduce([tensor]) on the process group itself"
        )
    counts = _agreed_counts(engine, own, ranks, milliseconds)
    indices = own.indices().contiguous()
    values = own.values() if reduction.factor is None else own.values() * reduction.factor
    everyones = [
        (indices.new_empty(own.sparse_dim(), count), values.new_empty(count, *values.shape[1:]))
        for count in counts
    ]
    engine.all_gather([places for places, _ in everyones], indices, milliseconds)
    engine.all_gather(
        [_plain(theirs) for _, theirs in everyones], _plain(values.contiguous()), milliseconds
    )
    wide = _WIDER.get(own.dtype, own.dtype)
    total = None
    for places, theirs in everyones:
        part = torch.sparse_coo_tensor(places, theirs.to(wide), own.shape, check_invariants=False)
        total = part if total is None else total + part
    assert total is not None
    total = total.coalesce()
    if reduction.number == _AVERAGE:
        quotient = total.values() / ranks
        if not wide.is_floating_point and not wide.is_complex:
            quotient = torch.div(total.values(), ranks, rounding_mode="trunc")
        total = torch.sparse_coo_tensor(
            total.indices(), quotient, own.shape, is_coalesced=True, check_invariants=False
        )
    with torch.no_grad():
        # A detached sparse tensor does not share what this replaces.
        tensor.copy_(total.to(own.dtype))


def _plain(values: Tensor) -> Tensor:
    return torch.view_as_real(values) if values.is_complex() else values


def _agreed_counts(engine: Engine, own: Tensor, ranks: int, milliseconds: int) -> list[int]:
    """Return how many elements each rank has."""
    head = torch.tensor([own.dim(), own.sparse_dim(), own.indices().shape[1]])
    heads = [torch.empty_like(head) for _ in range(ranks)]
    engine.all_gather(heads, head, milliseconds)
    dims = {tuple(each[:2].tolist()) for each in heads}
    if len(dims) > 1:
        raise ValueError(
            "all_reduce: expected sparse tensors of as many dimensions on all ranks, got (all, "
            f"sparse) {sorted(dims)}"
        )
    shape = torch.tensor(own.shape, dtype=torch.int64)
    shapes = [torch.empty_like(shape) for _ in range(ranks)]
    engine.all_gather(shapes, shape, milliseconds)
    found = {tuple(each.tolist()) for each in shapes}
    if len(found) > 1:
        raise ValueError(
            f"all_reduce: expected sparse tensors of one shape on all ranks, got {sorted(found)}"
        )
    return [int(each[2]) for each in heads]
