"""What the shim computes is what torch computes, with nothing to find."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import pytest
import torch
from torch import Tensor

from packages.conformance.tests.metal.functions_suite import SOURCE, FunctionsSuite, by_lanes
from torchyard_conformance.metal import Empty, run

TEMPLATES: Final = """
#include <metal_stdlib>
using namespace metal;
template <typename T>
kernel void twice(device const T* x [[buffer(0)]], device T* y [[buffer(1)]],
                  uint i [[thread_position_in_grid]]) {
  y[i] = x[i] + x[i];
}
template [[host_name("twice_float")]] kernel void twice<float>(
    device const float* x [[buffer(0)]], device float* y [[buffer(1)]],
    uint i [[thread_position_in_grid]]);
template kernel void twice<half>(device const half* x, device half* y, uint i);
"""


class TestShim(FunctionsSuite):
    def outputs(
        self,
        kernel: str,
        grid: int | tuple[int, ...],
        threads: int | tuple[int, ...],
        buffers: Sequence[Any] | Mapping[Any, Any],
        group_memory: Mapping[int, int] | None = None,
    ) -> Mapping[str, Tensor]:
        outcome = run(
            SOURCE,
            kernel,
            grid,
            threads,
            buffers,
            group_memory=group_memory,
            simd_widths=(32,),
        )
        assert [str(finding) for finding in outcome.findings] == []
        return outcome.outputs


@pytest.mark.parametrize("width", [16, 64])
def test_simdgroups_of_other_widths(width: int) -> None:
    x = torch.randint(-50, 50, (128,), generator=torch.Generator().manual_seed(1)).int()
    outcome = run(SOURCE, "lanes", 1, 128, [x, Empty((11, 128), torch.int32)], simd_widths=(width,))
    assert outcome.findings == ()
    assert torch.equal(outcome.outputs["y"], by_lanes(x, width))


@pytest.mark.parametrize(
    ("kernel", "dtype"), [("twice_float", torch.float32), ("twice<half>", torch.float16)]
)
def test_instantiations(kernel: str, dtype: torch.dtype) -> None:
    x = torch.randn(8, generator=torch.Generator().manual_seed(4)).to(dtype)
    outcome = run(TEMPLATES, kernel, 2, 4, [x, Empty((8,), dtype)])
    assert outcome.findings == ()
    assert torch.equal(outcome.outputs["y"], x + x)


def test_a_missing_barrier_of_the_simdgroup_is_found() -> None:
    x = torch.arange(128, dtype=torch.int32)
    fewer = SOURCE.replace("  simdgroup_barrier(mem_flags::mem_threadgroup);\n", "")
    assert fewer != SOURCE
    found = run(
        fewer, "neighbours_of_lanes", 1, 128, [x, Empty((128,), torch.int32)], simd_widths=(32,)
    ).findings
    assert "missing-barrier" in {finding.kind for finding in found}
