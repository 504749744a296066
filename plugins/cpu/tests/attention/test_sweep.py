"""Every kernel that this processor can run, against float64, over shapes, masks and layouts."""

from __future__ import annotations

import itertools
import random
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest
import torch
from torch import Tensor

from torchyard_cpu import _native

if TYPE_CHECKING:
    from plugins.cpu.tests.conftest import Attention

FACTORS = {
    "dims": [
        (8, 8),
        (16, 16),
        (17, 17),
        (32, 32),
        (40, 40),
        (64, 64),
        (72, 72),
        (80, 80),
        (96, 96),
        (128, 128),
        (192, 192),
        (256, 256),
        (1, 1),
        (64, 33),
        (13, 200),
        (192, 128),
    ],
    "lengths": [
        (0, 5),
        (5, 0),
        (1, 1),
        (1, 257),
        (7, 7),
        (127, 128),
        (128, 128),
        (129, 129),
        (128, 64),
        (257, 131),
        (31, 577),
        (257, 257),
    ],
    "heads": [(1, 1), (2, 1), (3, 1), (8, 1), (6, 3), (2, 2)],
    "mask": ["none", "causal", "window", "documents", "random", "empty rows", "nothing"],
    "block": [(128, 128), (64, 64), (16, 192), (48, 40), (1, 1000), (7, 13)],
    "layout": ["contiguous", "heads after rows", "sliced", "expanded", "unaligned"],
    "batches": [1, 2],
}


@dataclass(frozen=True)
class Case:
    dims: tuple[int, int]
    lengths: tuple[int, int]
    heads: tuple[int, int]
    mask: str
    block: tuple[int, int]
    layout: str
    batches: int

    def __str__(self) -> str:
        def x(pair: tuple[int, int]) -> str:
            return f"{pair[0]}x{pair[1]}"

        mask = self.mask if self.mask == "none" else f"{self.mask} {x(self.block)}"
        return (
            f"B{self.batches} H{x(self.heads)} S{x(self.lengths)} D{x(self.dims)} "
            f"{mask}, {self.layout}"
        )


def pairwise_cases() -> list[Case]:
    """Return cases in which every two values of different factors occur; always the same ones."""
    choose = random.Random(0)
    names = list(FACTORS)
    values = [FACTORS[name] for name in names]
    missing = {
        (a, i, b, j)
        for a, b in itertools.combinations(range(len(names)), 2)
        for i in range(len(values[a]))
        for j in range(len(values[b]))
    }

    def pairs(row: list[int]) -> set[tuple[int, int, int, int]]:
        return {(a, row[a], b, row[b]) for a, b in itertools.combinations(range(len(row)), 2)}

    cases = []
    while missing:
        # Around one missing pair, so that each round makes progress.
        a, i, b, j = min(missing)
        rows = []
        for _ in range(20):
            row = [choose.randrange(len(v)) for v in values]
            row[a], row[b] = i, j
            rows.append(row)
        best = max(rows, key=lambda row: len(pairs(row) & missing))
        missing -= pairs(best)
        cases.append(Case(*(v[at] for v, at in zip(values, best, strict=True))))
    return cases


CASES = pairwise_cases()
USABLE = [
    pytest.param(name, getattr(torch, dtype), id=name.removeprefix("attention_forward_"))
    for name, dtype, _, needed in _native.kernels()
    if set(needed) <= set(_native.cpu_features())
]


@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.parametrize(("kernel", "dtype"), USABLE)
def test_a_kernel_is_as_exact_as_the_naive_computation(
    attention: Attention, kernel: str, dtype: torch.dtype, case: Case
) -> None:
    from plugins.cpu.tests.conftest import block_mask

    heads, key_heads = case.heads
    rows, keys = case.lengths
    head_dim, value_dim = case.dims
    query = tensor(case.batches, heads, rows, head_dim, dtype, case.layout)
    key = tensor(case.batches, key_heads, keys, head_dim, dtype, case.layout)
    value = tensor(case.batches, key_heads, keys, value_dim, dtype, case.layout)
    visible = visibility(case)
    attention.check(
        kernel,
        query,
        key,
        value,
        visible=visible,
        mask=None if visible is None else block_mask(visible, case.block),
        row_padding=0 if case.layout == "contiguous" else 3,
    )


def tensor(
    batches: int, heads: int, rows: int, size: int, dtype: torch.dtype, layout: str
) -> Tensor:
    """Return random elements [batches, heads, rows, size]; the memory between them holds NaN."""
    data = torch.randn(batches, heads, rows, size).to(dtype)
    nan = float("nan")
    if layout == "contiguous":
        return data
    if layout == "heads after rows":
        return data.transpose(1, 2).contiguous().transpose(1, 2)
    if layout == "sliced":
        around = torch.full((batches, heads + 1, rows + 2, size + 5), nan, dtype=dtype)
        view = around[:, 1:, 1:-1, 2:-3]
    elif layout == "expanded":
        return data[:1].expand(batches, -1, -1, -1)
    else:
        flat = torch.full((data.numel() + 1,), nan, dtype=dtype)
        view = flat[1:].view(data.shape)
    view.copy_(data)
    return view


def visibility(case: Case) -> Tensor | None:
    """Return the case's mask as bool [Bm, Hm, rows, keys]."""
    rows, keys = case.lengths
    q = torch.arange(rows)[:, None]
    k = torch.arange(keys)[None, :]
    if case.mask == "none":
        return None
    if case.mask == "causal":
        return (q >= k)[None, None]
    if case.mask == "window":
        return ((q - k).abs() < 20)[None, None]
    if case.mask == "documents":
        ends = torch.randint(1, 100, (case.batches, 1, 1, 1))
        return q // ends == k // ends
    if case.mask == "random":
        return torch.rand(case.batches, case.heads[0], rows, keys) < 0.3
    if case.mask == "empty rows":
        return ((q >= k) & (q % 3 != 1))[None, None]
    return torch.zeros(1, case.heads[0], rows, keys, dtype=torch.bool)
