"""Every backward kernel that this processor can run, against float64, over shapes and masks."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch

from torchyard_cpu import _native

if TYPE_CHECKING:
    from .test_sweep import Case

KERNELS = [
    pytest.param(name, getattr(torch, dtype), id=name.removeprefix("attention_backward_"))
    for name, dtype, _, needed in _native.backward_kernels()
    if set(needed) <= set(_native.cpu_features())
]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Give every fourth case to every run, the others to the sweep's session."""
    from .test_sweep import CASES

    if "case" in metafunc.fixturenames:
        cases = [
            pytest.param(case, id=str(case), marks=[pytest.mark.sweep] if i % 4 else [])
            for i, case in enumerate(CASES)
        ]
        metafunc.parametrize("case", cases)


@pytest.mark.parametrize(("kernel", "dtype"), KERNELS)
def test_a_backward_kernel_is_as_exact_as_the_naive_computation(
    gradient_errors: dict[str, list[float]], kernel: str, dtype: torch.dtype, case: Case
) -> None:
    from plugins.cpu.tests.conftest import block_mask
    from plugins.cpu.tests.gradients import Problem, check

    from .test_sweep import tensor, visibility

    (heads, key_heads), (rows, keys), (size, value_size) = case.heads, case.lengths, case.dims
    visible = visibility(case)
    batches, layout = case.batches, case.layout
    problem = Problem(
        tensor(batches, heads, rows, size, dtype, layout),
        tensor(batches, key_heads, keys, size, dtype, layout),
        tensor(batches, key_heads, keys, value_size, dtype, layout),
        tensor(batches, heads, rows, value_size, dtype, layout),
        torch.randn(batches, heads, rows) if batches == 2 else None,
        visible,
        None if visible is None else block_mask(visible, case.block),
    )
    check(
        kernel,
        problem,
        gradient_errors,
        threads=1 + batches,
        row_padding=0 if layout == "contiguous" else 3,
    )
