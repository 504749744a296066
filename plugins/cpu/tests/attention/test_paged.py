"""Kernels that read keys and values in the pages of a cache: the same bits as side by side."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch
from torch import Tensor

from torchyard_attention import PagedKVCache, create_block_mask, flex_attention
from torchyard_attention.contract import MaskBlocks
from torchyard_cpu import _native
from torchyard_cpu._tuning.tunables import frozen
from torchyard_cpu.attention import _forward

KERNELS = [
    pytest.param(name, getattr(torch, dtype), id=name.removeprefix("attention_"))
    for table in (_native.kernels, _native.decode_kernels)
    for name, dtype, _, needed in table()
    if set(needed) <= set(_native.cpu_features())
]
each_kernel = pytest.mark.parametrize(("kernel", "dtype"), KERNELS)
LENGTHS = [700, 1, 0, 64, 513, 130]


@dataclass(frozen=True)
class Paged:
    """Sequences of LENGTHS in pages; everything that belongs to none of them is NaN."""

    key: Tensor
    value: Tensor
    table: Tensor
    lengths: Tensor
    side_by_side: list[tuple[Tensor, Tensor]]


def paged(dtype: torch.dtype, page_size: int, *, dims: tuple[int, int], seed: int = 0) -> Paged:
    """Lay sequences out in pages that are drawn at random."""
    torch.manual_seed(0)
    heads = 2
    sequences = [
        (torch.randn(heads, n, dims[0]).to(dtype), torch.randn(heads, n, dims[1]).to(dtype))
        for n in LENGTHS
    ]
    counts = [-(-n // page_size) for n in LENGTHS]
    pages = sum(counts) + 3
    order = torch.randperm(pages, generator=torch.Generator().manual_seed(seed)).tolist()
    pools = [torch.full((heads, pages, page_size, d), math.nan, dtype=dtype) for d in dims]
    # Entries after a sequence's last page are not read.
    table = torch.full((len(LENGTHS), max(counts) + 1), -(1 << 30), dtype=torch.int32)
    for number, (count, sequence) in enumerate(zip(counts, sequences, strict=True)):
        for place in range(count):
            page = order.pop()
            table[number, place] = page
            for pool, rows in zip(pools, sequence, strict=True):
                part = rows[:, place * page_size : (place + 1) * page_size]
                pool[:, page, : part.shape[1]] = part
    key, value = (pool.transpose(0, 1) for pool in pools)
    return Paged(key, value, table, torch.tensor(LENGTHS, dtype=torch.int32), sequences)


def run(
    kernel: str,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    pages: Paged | None = None,
    mask: MaskBlocks | None = None,
    threads: int = 1,
) -> tuple[Tensor, Tensor, Tensor]:
    """Run a kernel into outputs full of NaN, with working memory full of NaN."""
    out = torch.full((*query.shape[:3], value.shape[3]), math.nan, dtype=query.dtype)
    lse, most = torch.full((2, *query.shape[:3]), math.nan)
    call = _forward.call_places(
        query, key, value, out, lse, 0.2, mask, frozen(kernel.rpartition("_")[2])
    )
    place = None
    if pages is not None:
        batches = query.shape[0]
        call = ((batches, *call[0][1:]), *call[1:])
        place = (
            pages.table.data_ptr(),
            pages.table.shape[1],
            pages.lengths.data_ptr(),
            key.shape[2],
            key.shape[0],
        )
    decoding = kernel.startswith("attention_decode_")
    attend = _native.attention_decode if decoding else _native.attention_forward
    attend(kernel, *call, None, most.data_ptr(), threads, True, place)
    return out, lse, most


def queries(kernel: str, dtype: torch.dtype, dim: int, rows: int) -> Tensor:
    rows = rows if kernel.startswith("attention_decode_") else 20 * rows
    return torch.randn(len(LENGTHS), 4, rows, dim).to(dtype)


def ends_mask(rows: int, *, of: int | None = None) -> MaskBlocks:
    """Hide later keys where the ends of queries and keys are aligned, and some more of them."""
    lengths = LENGTHS if of is None else [LENGTHS[of]]
    ends = torch.tensor(lengths)

    def seen(b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
        return (k < ends[b]) & (k <= q + ends[b] - rows) & ((k % 7 != 3) | (h > 1))

    mask = create_block_mask(seen, len(lengths), 4, rows, max(LENGTHS), device="cpu")
    return MaskBlocks(mask.BLOCK_SIZE, *mask.block_tensors())


@pytest.mark.parametrize("page_size", [1, 3, 16, 64, 100, 128, 1000])
@pytest.mark.parametrize("masked", [False, True])
@each_kernel
def test_pages_give_the_bits_of_keys_side_by_side(
    kernel: str, dtype: torch.dtype, masked: bool, page_size: int
) -> None:
    cache = paged(dtype, page_size, dims=(40, 24))
    query = queries(kernel, dtype, 40, 3)
    rows = query.shape[2]
    mask = ends_mask(rows) if masked else None
    found = run(kernel, query, cache.key, cache.value, pages=cache, mask=mask, threads=2)
    for number, (key, value) in enumerate(cache.side_by_side):
        one = slice(number, number + 1)
        own = None if mask is None else ends_mask(rows, of=number)
        expected = run(kernel, query[one], key[None], value[None], mask=own)
        assert all(torch.equal(a[one], b) for a, b in zip(found, expected, strict=True))


@pytest.mark.parametrize("dims", [(1, 1), (64, 64), (72, 80), (128, 128), (256, 255)])
@each_kernel
def test_every_head_size_is_read_from_pages(
    kernel: str, dtype: torch.dtype, dims: tuple[int, int]
) -> None:
    cache = paged(dtype, 16, dims=dims)
    query = queries(kernel, dtype, dims[0], 1)
    out, *_ = run(kernel, query, cache.key, cache.value, pages=cache)
    for number, (key, value) in enumerate(cache.side_by_side):
        one = slice(number, number + 1)
        assert torch.equal(out[one], run(kernel, query[one], key[None], value[None])[0])


@each_kernel
def test_neither_the_order_of_pages_nor_threads_change_a_bit(
    kernel: str, dtype: torch.dtype
) -> None:
    caches = [paged(dtype, 16, dims=(64, 64), seed=seed) for seed in range(3)]
    query = queries(kernel, dtype, 64, 2)
    mask = ends_mask(query.shape[2])
    results = [
        run(kernel, query, cache.key, cache.value, pages=cache, mask=mask, threads=threads)
        for cache, threads in zip(caches, (1, 2, 7), strict=True)
    ]
    assert not torch.equal(caches[0].table, caches[1].table)
    for result in results[1:]:
        assert all(torch.equal(a, b) for a, b in zip(result, results[0], strict=True))


@each_kernel
def test_strides_of_a_pool_are_followed(kernel: str, dtype: torch.dtype) -> None:
    cache = paged(dtype, 16, dims=(40, 40))
    query = queries(kernel, dtype, 40, 1)
    expected = run(kernel, query, cache.key, cache.value, pages=cache)
    for order in ((0, 1, 2, 3), (0, 2, 1, 3), (2, 1, 0, 3)):
        back = [order.index(i) for i in range(4)]
        key, value = (
            pool.permute(order).contiguous().permute(back) for pool in (cache.key, cache.value)
        )
        got = run(kernel, query, key, value, pages=cache)
        assert all(torch.equal(a, b) for a, b in zip(got, expected, strict=True))


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"lengths": torch.tensor([17], dtype=torch.int32)}, "lengths of 0 to 16, got 17"),
        ({"lengths": torch.tensor([-1], dtype=torch.int32)}, "lengths of 0 to 16, got -1"),
        (
            {"table": torch.tensor([[5, 0]], dtype=torch.int32)},
            "pages of 0 to 4 in the table, got 5",
        ),
        (
            {"table": torch.tensor([[-1, 0]], dtype=torch.int32)},
            "pages of 0 to 4 in the table, got",
        ),
    ],
)
@pytest.mark.parametrize("table", ["forward", "decode"])
def test_a_table_that_leads_out_of_the_pool_is_refused(
    table: str, change: dict[str, Tensor], text: str
) -> None:
    pool, query = torch.zeros(5, 1, 8, 8), torch.zeros(1, 1, 1, 8)
    good = Paged(
        pool,
        pool,
        torch.tensor([[4, 0]], dtype=torch.int32),
        torch.tensor([16], dtype=torch.int32),
        [],
    )
    select = _native.select_kernel if table == "forward" else _native.select_decode
    kernel = select("float32", (), None)
    assert kernel is not None
    run(kernel, query, pool, pool, pages=good)
    with pytest.raises(ValueError, match=text):
        run(kernel, query, pool, pool, pages=replace(good, **change))


def filled(lengths: list[int], page_size: int, dtype: torch.dtype) -> tuple[PagedKVCache, Tensor]:
    torch.manual_seed(0)
    cache = PagedKVCache(700, page_size, kv_heads=2, head_dim=64, dtype=dtype)
    for length in lengths:
        rows = torch.randn(length, 2, 64).to(dtype)
        cache.append(cache.open(), rows, rows.flip(0))
    return cache, torch.randn(sum(lengths), 4, 64).to(dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("chunk", [128, 256, 100, 7, 1])
def test_a_prompt_in_chunks_is_the_prompt_at_once(dtype: torch.dtype, chunk: int) -> None:
    length = 600 if chunk > 1 else 70
    cache, query = filled([length], 16, dtype)
    key, value = cache.keys_and_values(0)
    at_once = cache.attention(query, 0)
    chunked, sequence = [], cache.open()
    for start in range(0, length, chunk):
        part = slice(start, start + chunk)
        rows = (key[:, part].transpose(0, 1), value[:, part].transpose(0, 1))
        chunked.append(cache.append(sequence, *rows).attention(query[part]))
    got = torch.cat(chunked)
    if chunk % 128 == 0:
        assert torch.equal(got, at_once), "chunks of whole blocks are cut as one prompt is"
        return
    mask = create_block_mask(lambda b, h, q, k: q >= k, None, None, length, length, device="cpu")
    rows = query.transpose(0, 1)[None]

    def attend(implementation: str, dtype: torch.dtype) -> Tensor:
        inputs = (t.to(dtype) for t in (rows, key[None], value[None]))
        out = flex_attention(
            *inputs, block_mask=mask, enable_gqa=True, implementation=implementation
        )
        return out[0].transpose(0, 1).double()

    true = attend("attention.reference", torch.float64)
    eps = torch.finfo(dtype).eps
    naive = (attend("attention.tiled", dtype) - true).abs().max()
    assert (got.double() - true).abs().max() <= 2 * naive + eps * true.abs().max()


@pytest.mark.parametrize("counts", [[1, 1, 1, 1], [40, 1, 300, 7], [2, 2, 4, 2]])
def test_a_sequence_does_not_notice_its_companions(counts: list[int]) -> None:
    lengths = [300, 40, 700, 7]
    cache, _ = filled(lengths, 16, torch.bfloat16)
    query = torch.randn(sum(counts), 4, 64).bfloat16()
    together = cache.attention(query, range(4), counts=counts)
    for sequence, (rows, got) in enumerate(
        zip(query.split(counts), together.split(counts), strict=True)
    ):
        assert torch.equal(got, cache.attention(rows, sequence))


def test_a_step_is_read_in_place_whatever_it_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> None:
        raise AssertionError("keys were copied")

    monkeypatch.setattr("torchyard_attention._paged._op.gathered", refuse)
    cache, _ = filled([300, 40], 16, torch.float32)
    query = torch.randn(42, 4, 64)
    for how in ({}, {"score_mod": lambda s, b, h, q, k: s - 0.1 * (q - k)}):
        cache.attention(query, [0, 1], counts=[40, 2], implementation="cpu.native", **how)
