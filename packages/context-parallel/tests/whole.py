"""One process's attention over the whole sequence, and what each rank must have of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.device_mesh import init_device_mesh

from torchyard_attention import (
    BlockMask,
    and_masks,
    create_block_mask,
    flex_attention,
    masks,
    scores,
)
from torchyard_context_parallel import Sharding, context_parallel_attention

BLOCK: Final = 32
_DOCUMENTS: Final = torch.tensor([0, 5, 60, 61, 150, 999])


def _mask_mod(b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
    return ((q * 7 + k * 3 + h + b) % 5 != 0) & (k <= q + 8)


def _documents(length: int) -> Tensor:
    return torch.bucketize(torch.arange(length), _DOCUMENTS, right=True)


# Name -> (mask_mod of a length, whether it differs by batch and head)
MASKS: Final[dict[str, tuple[Callable[[int], Any], bool]]] = {
    "none": (lambda length: None, False),
    "causal": (lambda length: masks.causal, False),
    "window": (lambda length: masks.sliding_window(40), False),
    "documents": (
        lambda length: and_masks(masks.causal, masks.document(_documents(length))),
        False,
    ),
    "any": (lambda length: _mask_mod, True),
}
MODS: Final = ("none", "alibi", "bias", "heads")
SHARDINGS: Final[dict[str, Callable[[int, int, BlockMask | None], Sharding | None]]] = {
    "asked": lambda length, ranks, mask: None,
    "head_tail": lambda length, ranks, mask: Sharding.head_tail(length, ranks, multiple=BLOCK),
    "balanced": lambda length, ranks, mask: (
        Sharding.contiguous(length, ranks, multiple=BLOCK)
        if mask is None
        else Sharding.balanced(mask, ranks)
    ),
    "uneven": lambda length, ranks, mask: Sharding.of_lengths(
        [length - 7 * (ranks - 1), *(7,) * (ranks - 1)]
    ),
    "some empty": lambda length, ranks, mask: Sharding.of_lengths([0, length, *(0,) * (ranks - 2)]),
}


@dataclass(frozen=True)
class Case:
    """One call, small enough for a test; pickled to the ranks."""

    mask: str = "causal"
    mod: str = "none"
    sharding: str = "asked"
    schedule: str = "ring"
    length: int = 170
    heads: int = 4
    kv_heads: int = 2
    dtype: torch.dtype = torch.float64
    mesh: tuple[int, ...] | None = None
    kv_length: int | None = None


@dataclass
class Outcome:
    """Outputs and gradients, of the whole sequence or of a part."""

    out: Tensor
    lse: Tensor
    query: Tensor
    key: Tensor
    value: Tensor
    table: Tensor | None


def _inputs(case: Case) -> list[Tensor]:
    generator = torch.Generator().manual_seed(5)
    keys = (case.kv_heads, case.kv_length or case.length)
    return [
        torch.randn(2, *sizes, 16, generator=generator).to(case.dtype)
        for sizes in ((case.heads, case.length), keys, keys, (case.heads, case.length))
    ]


def _modifiers(case: Case) -> tuple[Any, Tensor | None, BlockMask | None]:
    build, apart = MASKS[case.mask]
    mod = build(case.length)
    mask = None
    if mod is not None:
        sizes = (2, case.heads) if apart else (None, None)
        mask = create_block_mask(mod, *sizes, case.length, case.length, "cpu", BLOCK)
    table = None
    if case.mod == "none":
        return None, None, mask
    if case.mod == "alibi":
        return scores.alibi(scores.alibi_slopes(case.heads)), None, mask
    table = torch.linspace(-1, 1, 2 * case.length, dtype=case.dtype).requires_grad_()
    if case.mod == "bias":
        return (lambda s, b, h, q, k: s + table[q - k + case.length]), table, mask
    return (lambda s, b, h, q, k: s * (1 + table[h]) + table[q] * table[k]), table, mask


def _outcome(
    out: Tensor, lse: Tensor, inputs: list[Tensor], table: Tensor | None, grad: Tensor
) -> Outcome:
    wanted = inputs if table is None else [*inputs, table]
    seen = torch.where(lse == -torch.inf, 0.0, lse)
    grads = torch.autograd.grad((out * grad).sum() + (seen * grad[..., 0]).sum(), wanted)
    return Outcome(out.detach(), lse.detach(), *grads[:3], None if table is None else grads[3])


def whole(case: Case) -> Outcome:
    """Compute the case in this process."""
    *inputs, grad = _inputs(case)
    mod, table, mask = _modifiers(case)
    inputs = [tensor.requires_grad_() for tensor in inputs]
    out, lse = flex_attention(*inputs, mod, mask, enable_gqa=True, return_lse=True)
    return _outcome(out, lse, inputs, table, grad)


def part(case: Case) -> tuple[Outcome, Tensor, Tensor]:
    """Compute this rank's part of the case; return it with its queries' and keys' positions."""
    ranks, rank = dist.get_world_size(), dist.get_rank()
    mod, table, mask = _modifiers(case)
    sharding = SHARDINGS[case.sharding](case.length, ranks, mask)
    dealt = sharding or Sharding.contiguous(case.length, ranks)
    keys = Sharding.contiguous(case.kv_length, ranks) if case.kv_length else dealt
    *inputs, grad = (
        held.take(tensor, rank, 2)
        for held, tensor in zip((dealt, keys, keys, dealt), _inputs(case), strict=True)
    )
    inputs = [tensor.requires_grad_() for tensor in inputs]
    mesh = init_device_mesh("cpu", case.mesh) if case.mesh else dist.group.WORLD
    out, lse = context_parallel_attention(
        *inputs,
        mesh=mesh,
        score_mod=mod,
        block_mask=mask,
        schedule=case.schedule,
        sharding=sharding,
        return_lse=True,
    )
    return _outcome(out, lse, inputs, table, grad), dealt.positions(rank), keys.positions(rank)
