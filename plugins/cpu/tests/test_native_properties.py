"""Random calls of the native kernels against float64: forward, decoding, backward, programs.

Few of them in every run, many in the sweep's session and, under sanitizers, in ``sanitize``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor

from torchyard_cpu import _isa, _native

if TYPE_CHECKING:
    from .conftest import Attention

ISAS = [
    isa
    for isa, needed in _isa.feature_sets().items()
    if needed <= frozenset(_native.cpu_features())
]


def _usable(table: tuple[tuple[str, str, str, tuple[str, ...]], ...]) -> list[tuple[str, str]]:
    features = set(_native.cpu_features())
    return [(name, dtype) for name, dtype, _, needed in table if set(needed) <= features]


@dataclass(frozen=True)
class Call:
    """A random call; the mask is given by a seed and how many of its pairs are visible."""

    batches: int
    heads: tuple[int, int]
    lengths: tuple[int, int]
    dims: tuple[int, int]
    layout: str
    block: tuple[int, int] | None
    density: float
    threads: int
    seed: int

    def visible(self) -> Tensor | None:
        """Return bool [1, 1, rows, keys]; of few densities, so that full and empty blocks occur."""
        if self.block is None:
            return None
        rows, keys = self.lengths
        coarse = torch.rand(-(-rows // self.block[0]), -(-keys // self.block[1]))
        blocks = coarse.repeat_interleave(self.block[0], 0).repeat_interleave(self.block[1], 1)
        fine = torch.rand(rows, keys) < self.density
        blocks = blocks[:rows, :keys]
        return ((blocks < 0.3) | ((blocks < 0.8) & fine))[None, None]


def _calls(rows: st.SearchStrategy[int], group: st.SearchStrategy[int]) -> st.SearchStrategy[Call]:
    size = st.one_of(st.integers(1, 40), st.sampled_from([64, 96, 128, 255, 256]))
    return st.builds(
        lambda batches, key_heads, group, rows, keys, *rest: Call(
            batches, (key_heads * group, key_heads), (rows, keys), *rest
        ),
        st.integers(1, 2),
        st.integers(1, 2),
        group,
        rows,
        st.one_of(st.integers(0, 70), st.integers(120, 140), st.integers(500, 700)),
        st.tuples(size, size),
        st.sampled_from(["contiguous", "heads after rows", "sliced", "expanded", "unaligned"]),
        st.one_of(
            st.none(), st.tuples(st.integers(1, 40), st.integers(1, 90)), st.just((128, 128))
        ),
        st.sampled_from([0.0, 0.1, 0.9, 1.0]),
        st.integers(1, 3),
        st.integers(0, 2**31),
    )


_TALL = _calls(st.one_of(st.integers(0, 20), st.integers(60, 140)), st.integers(1, 3))
_FLAT = _calls(st.integers(1, 2), st.sampled_from([1, 2, 4, 8]))

each_size = pytest.mark.parametrize(
    "cases", [25, pytest.param(600, marks=pytest.mark.sweep)], ids=["few", "many"]
)


def _run(cases: int, check: Callable[..., None], **drawn: st.SearchStrategy[Any]) -> None:
    settings(
        max_examples=cases,
        derandomize=True,
        database=None,
        suppress_health_check=list(HealthCheck),
    )(given(**drawn)(check))()


def _tensors(call: Call, dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor]:
    from .attention.test_sweep import tensor

    torch.manual_seed(call.seed)
    (heads, key_heads), (rows, keys), (size, value_size) = call.heads, call.lengths, call.dims
    return (
        tensor(call.batches, heads, rows, size, dtype, call.layout),
        tensor(call.batches, key_heads, keys, size, dtype, call.layout),
        tensor(call.batches, key_heads, keys, value_size, dtype, call.layout),
    )


@each_size
@pytest.mark.parametrize("table", [_native.kernels, _native.decode_kernels])
def test_any_forward_call_is_within_the_bound(
    attention: Attention, native_cases: dict[str, int], table: Any, cases: int
) -> None:
    from .conftest import block_mask

    decoding = table is _native.decode_kernels

    def check(call: Call, kernel: tuple[str, str]) -> None:
        query, key, value = _tensors(call, getattr(torch, kernel[1]))
        visible = call.visible()
        assert visible is None or call.block is not None
        attention.check(
            kernel[0],
            query,
            key,
            value,
            visible=visible,
            mask=None if visible is None else block_mask(visible, call.block or (1, 1)),
            threads=call.threads,
            row_padding=3,
        )
        native_cases["decoding" if decoding else "forward"] += 1

    _run(
        cases,
        check,
        call=_FLAT if decoding else _TALL,
        kernel=st.sampled_from(_usable(table())),
    )


@each_size
def test_any_backward_call_is_within_the_bound(
    gradient_errors: dict[str, list[float]], native_cases: dict[str, int], cases: int
) -> None:
    from .attention.test_sweep import tensor
    from .conftest import block_mask
    from .gradients import Problem, check

    def judge(call: Call, kernel: tuple[str, str], with_lse: bool) -> None:
        dtype = getattr(torch, kernel[1])
        query, key, value = _tensors(call, dtype)
        rows = query.shape[:3]
        visible = call.visible()
        problem = Problem(
            query,
            key,
            value,
            tensor(*rows, call.dims[1], dtype, call.layout),
            torch.randn(rows) if with_lse else None,
            visible,
            None if visible is None else block_mask(visible, call.block or (1, 1)),
        )
        check(kernel[0], problem, gradient_errors, threads=call.threads, row_padding=3)
        native_cases["backward"] += 1

    _run(
        cases,
        judge,
        call=_TALL,
        kernel=st.sampled_from(_usable(_native.backward_kernels())),
        with_lse=st.booleans(),
    )


@each_size
def test_any_program_gives_what_torch_gives(native_cases: dict[str, int], cases: int) -> None:
    from torchyard import probe_platform
    from torchyard_attention import reference
    from torchyard_attention.testing import make_call, request_of
    from torchyard_cpu import attention
    from torchyard_cpu.attention._forward import NativeForward

    from .scores.test_programs_random import FLOATS

    def check(call: Call, mod: Any, isa: str) -> None:
        torch.manual_seed(call.seed)
        made = make_call(
            batch=call.batches,
            q_heads=call.heads[0],
            kv_heads=call.heads[1],
            q_length=call.lengths[0],
            kv_length=call.lengths[1],
            head_dim=8,
            visible=call.visible(),
            block_size=call.block or (128, 128),
            score_mod=mod,
        )
        verdict = attention.supports(request_of(made), probe_platform(), isa=isa)
        assert verdict.supported, verdict.text
        got, true = NativeForward(isa)(made), reference.reference_forward(made)
        torch.testing.assert_close(got.lse, true.lse, rtol=5e-5, atol=5e-5)
        torch.testing.assert_close(got.out, true.out, rtol=2e-4, atol=2e-4)
        native_cases["score programs"] += 1

    _run(cases, check, call=_TALL, mod=FLOATS, isa=st.sampled_from(ISAS))
