"""Metamorphic laws: equivalent attention calls have equal results."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from typing import Final

import torch
from torch import Tensor

from torchyard_attention import merge_states
from torchyard_attention.cases import Case
from torchyard_attention.contract import AttentionCall, AttentionResult, MaskBlocks
from torchyard_attention.pages import KeyPages, reads_pages
from torchyard_attention.testing import mask_blocks, request_of
from torchyard_attention.visibility import dense_visibility
from torchyard_conformance._attention._kernel import Kernel
from torchyard_conformance._attention._rulers import compare
from torchyard_conformance._outcome import NotSupported, Violated

__all__ = [
    "appended_hidden_keys",
    "full_blocks_as_partial",
    "merged_parts_of_keys",
    "order_of_blocks",
    "pages_anywhere",
    "permuted_batch_and_heads",
    "rows_in_chunks",
    "scaled_values",
    "shared_heads_written_out",
]

_PAGE: Final = 16
_GARBAGE: Final = torch.iinfo(torch.int32).max


def full_blocks_as_partial(kernel: Kernel, case: Case) -> dict[str, float]:
    """List wholly visible blocks as partial ones."""
    call = kernel.accept(case)
    visible = _dense(call)
    if call.mask is None or call.mask.full_kv_num_blocks.sum() == 0:
        raise NotSupported("no block is wholly visible")
    partial = mask_blocks(visible, call.mask.block_size, separate_full_blocks=False)
    return _compare(kernel, case, replace(call, mask=_on(partial, kernel.device)))


def order_of_blocks(kernel: Kernel, case: Case) -> dict[str, float]:
    """List blocks backwards, with garbage in the places behind the last one."""
    call = kernel.accept(case)
    if call.mask is None:
        raise NotSupported("no mask")
    mask = _reversed(_on(call.mask, "cpu"))
    return _compare(kernel, case, replace(call, mask=_on(mask, kernel.device)))


def appended_hidden_keys(kernel: Kernel, case: Case) -> dict[str, float]:
    """Append blocks of keys that no row sees."""
    call = kernel.accept(case)
    size = (128, 128) if call.mask is None else call.mask.block_size
    more = 2 * size[1] + 3
    visible = torch.nn.functional.pad(_dense(call), (0, more))
    longer = replace(
        call,
        key=_longer(call.key, more),
        value=_longer(call.value, more),
        mask=_on(mask_blocks(visible, size), kernel.device),
    )
    return _compare(kernel, case, longer)


def merged_parts_of_keys(kernel: Kernel, case: Case) -> dict[str, float]:
    """Cut the keys into parts, attend to each, and merge the results by their lse."""
    call = kernel.accept(case)
    _without_score_mod(case)
    if not call.lse or call.max_scores:
        raise NotSupported("parts are merged by their lse, and nothing else of them is")
    keys = call.key.shape[2]
    cuts = sorted({0, 1, keys // 3, keys // 3, keys - 5, keys} & set(range(keys + 1)))
    parts = [
        kernel.run(_sliced(kernel, call, keys=slice(start, end))) for start, end in pairwise(cuts)
    ]
    outs = [part.out.cpu() for part in parts]
    lses = [part.lse.cpu() for part in parts if part.lse is not None]
    if len(lses) != len(outs):
        raise Violated("lse: asked for, and missing")
    # Each part's out is rounded once; merged as they are computed, so that this adds nothing.
    wide = lses[0].dtype
    out, lse = merge_states([out.to(wide) for out in outs], lses)
    return compare(case, AttentionResult(out.to(call.query.dtype), lse))


def rows_in_chunks(kernel: Kernel, case: Case) -> dict[str, float]:
    """Attend with a few queries at a time."""
    call = kernel.accept(case)
    _without_score_mod(case)
    rows = call.query.shape[2]
    cuts = sorted({0, 1, rows // 2, rows} & set(range(rows + 1)))
    parts = [
        kernel.run(_sliced(kernel, call, rows=slice(start, end))) for start, end in pairwise(cuts)
    ]
    return compare(
        case,
        AttentionResult(
            torch.cat([part.out.cpu() for part in parts], dim=2),
            _joined([part.lse for part in parts]),
            _joined([part.max_scores for part in parts]),
        ),
    )


def permuted_batch_and_heads(kernel: Kernel, case: Case) -> dict[str, float]:
    """Turn the order of batch entries and of groups of heads around."""
    call = kernel.accept(case)
    _without_score_mod(case)
    if call.mask is not None and call.mask.kv_num_blocks.shape[:2] != (1, 1):
        raise NotSupported("the mask looks at the batch or the head")
    kv_heads = call.key.shape[1]
    group = call.query.shape[1] // kv_heads

    def turned(tensor: Tensor, size: int) -> Tensor:
        shape = (tensor.shape[0], tensor.shape[1] // size, size, *tensor.shape[2:])
        return tensor.flip(0).reshape(shape).flip(1).flatten(1, 2).contiguous()

    changed = replace(
        call,
        query=turned(call.query, group),
        key=turned(call.key, 1),
        value=turned(call.value, 1),
    )
    return _compare(kernel, case, changed, lambda tensor: turned(tensor, group))


def shared_heads_written_out(kernel: Kernel, case: Case) -> dict[str, float]:
    """Repeat each key head for the query heads that share it."""
    call = kernel.accept(case)
    group = call.query.shape[1] // call.key.shape[1]
    if group == 1:
        raise NotSupported("no head is shared")
    compare(case, kernel.run(call))
    written = replace(
        call,
        key=call.key.repeat_interleave(group, dim=1),
        value=call.value.repeat_interleave(group, dim=1),
    )
    return _compare(kernel, case, written)


def scaled_values(kernel: Kernel, case: Case) -> dict[str, float]:
    """Scale the values by a power of two: out scales, and lse and max_scores stay."""
    call = kernel.accept(case)
    result = _run(kernel, case, replace(call, value=call.value * 4.0))
    return compare(case, replace(result, out=result.out / 4.0))


def pages_anywhere(kernel: Kernel, case: Case) -> dict[str, float]:
    """Keep keys and values in pages, in any order, between pages of NaN."""
    call = kernel.accept(case)
    batch, keys = call.query.shape[0], call.key.shape[2]
    width = -(-keys // _PAGE)
    request = request_of(call, causal=False, grad=False)
    kernel.require(replace(request, page_size=_PAGE, kv_length=width * _PAGE))
    if not reads_pages(kernel.function):
        raise NotSupported("does not read pages; keys are gathered before it is called")
    generator = torch.Generator().manual_seed(5)
    figures: dict[str, float] = {}
    for _ in range(2):
        # Twice as many pages as are used: the others hold NaN.
        order = torch.randperm(2 * batch * width, generator=generator)
        table = order[: batch * width].view(batch, width).to(torch.int32)
        paged = replace(
            call,
            key=_pool(call.key, table),
            value=_pool(call.value, table),
            pages=KeyPages(
                table.to(kernel.device),
                torch.full((batch,), keys, dtype=torch.int32, device=kernel.device),
            ),
        )
        found = _compare(kernel, case, paged)
        figures = {name: max(x, figures.get(name, 0.0)) for name, x in found.items()}
    return figures


def _compare(
    kernel: Kernel,
    case: Case,
    call: AttentionCall,
    back: Callable[[Tensor], Tensor] = lambda tensor: tensor,
) -> dict[str, float]:
    result = _run(kernel, case, call)
    lse, greatest = (
        None if extra is None else back(extra) for extra in (result.lse, result.max_scores)
    )
    return compare(case, AttentionResult(back(result.out), lse, greatest))


def _run(kernel: Kernel, case: Case, call: AttentionCall) -> AttentionResult:
    if call.pages is None:
        causal = case.mask == "causal" and _is_causal(call)
        kernel.require(request_of(call, causal=causal, grad=False))
    return kernel.run(call)


def _is_causal(call: AttentionCall) -> bool:
    rows, keys = call.query.shape[2], call.key.shape[2]
    wanted = torch.ones((rows, keys), dtype=torch.bool).tril()
    return torch.equal(_dense(call)[0, 0], wanted)


def _sliced(
    kernel: Kernel,
    call: AttentionCall,
    *,
    rows: slice = slice(None),
    keys: slice = slice(None),
) -> AttentionCall:
    """Return the call of some queries and keys, where the kernel accepts it."""
    mask = call.mask
    if mask is not None:
        part = _dense(call)[:, :, rows, keys]
        mask = _on(mask_blocks(part, mask.block_size), kernel.device)
    part_call = replace(
        call,
        query=call.query[:, :, rows].contiguous(),
        key=call.key[:, :, keys].contiguous(),
        value=call.value[:, :, keys].contiguous(),
        mask=mask,
    )
    kernel.require(request_of(part_call, causal=False, grad=False))
    return part_call


def _dense(call: AttentionCall) -> Tensor:
    rows, keys = call.query.shape[2], call.key.shape[2]
    if call.mask is None:
        return torch.ones((1, 1, rows, keys), dtype=torch.bool)
    return dense_visibility(call.mask, rows, keys).cpu()


def _on(mask: MaskBlocks, device: str) -> MaskBlocks:
    tensors = (
        mask.kv_num_blocks,
        mask.kv_indices,
        mask.full_kv_num_blocks,
        mask.full_kv_indices,
        mask.bits,
        mask.first_partial,
    )
    return MaskBlocks(mask.block_size, *(tensor.to(device) for tensor in tensors))


def _reversed(mask: MaskBlocks) -> MaskBlocks:
    """Return the same mask with its lists backwards and two places more."""
    order = torch.arange(mask.bits.shape[0])
    bits = mask.bits.clone()
    for first, count in zip(
        mask.first_partial.flatten().tolist(), mask.kv_num_blocks.flatten().tolist(), strict=True
    ):
        bits[first : first + count] = mask.bits[order[first : first + count].flip(0)]

    def backwards(indices: Tensor, counts: Tensor) -> Tensor:
        wider = indices.new_full((*indices.shape[:3], indices.shape[3] + 2), _GARBAGE)
        for at in torch.cartesian_prod(*(torch.arange(size) for size in counts.shape)).tolist():
            count = int(counts[tuple(at)])
            wider[tuple(at)][:count] = indices[tuple(at)][:count].flip(0)
        return wider

    return replace(
        mask,
        kv_indices=backwards(mask.kv_indices, mask.kv_num_blocks),
        full_kv_indices=backwards(mask.full_kv_indices, mask.full_kv_num_blocks),
        bits=bits,
    )


def _longer(tensor: Tensor, more: int) -> Tensor:
    extra = tensor[:, :, :1].expand(-1, -1, more, -1) if tensor.shape[2] else None
    if extra is None:
        raise NotSupported("no keys")
    return torch.cat([tensor, extra * 3.0], dim=2)


def _pool(tensor: Tensor, table: Tensor) -> Tensor:
    """Return [pages, Hkv, page size, D]: the table's pages, and NaN everywhere else."""
    batch, heads, _, size = tensor.shape
    pool = torch.full((2 * table.numel(), heads, _PAGE, size), torch.nan, dtype=tensor.dtype)
    for b in range(batch):
        for index, page in enumerate(table[b].tolist()):
            part = tensor[b, :, index * _PAGE : (index + 1) * _PAGE].cpu()
            pool[page, :, : part.shape[1]] = part
    return pool.to(tensor.device)


def _joined(parts: list[Tensor | None]) -> Tensor | None:
    found = [part.cpu() for part in parts if part is not None]
    return torch.cat(found, dim=2) if found else None


def _without_score_mod(case: Case) -> None:
    if case.score_mod:
        raise NotSupported("a score_mod may look at the indices that change")
