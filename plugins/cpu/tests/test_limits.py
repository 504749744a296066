"""The processor's limits, and the workloads that are measured against them."""

from __future__ import annotations

from functools import partial
from types import ModuleType

import pytest

import torchyard
from torchyard_attention import _workloads as attention_workloads
from torchyard_cpu import _native
from torchyard_kernels import _workloads as kernel_workloads


def test_arithmetic_is_measured_in_every_dtype_that_has_instructions() -> None:
    found = _native.arithmetic_limits(1, 0.01)
    pairs = {"avx512_bf16", "bf16"} & set(_native.cpu_features())
    assert found.keys() == ({"float32", "bfloat16"} if pairs else {"float32"})
    assert all(rate > 0 for rate in found.values())


def test_reading_and_updating_memory_are_measured() -> None:
    assert _native.read_limit(1, 0.05) > 0
    assert _native.update_limit(1, 0.05) > 0


@pytest.mark.parametrize(
    "measure", [_native.arithmetic_limits, _native.read_limit, _native.update_limit]
)
@pytest.mark.parametrize(("threads", "seconds"), [(0, 1.0), (5000, 1.0), (1, 0.0), (1, 61.0)])
def test_an_effort_out_of_bounds_is_refused(
    measure: partial[object], threads: int, seconds: float
) -> None:
    with pytest.raises(ValueError, match="threads: expected 1 to 4096"):
        measure(threads, seconds)


@pytest.mark.sweep
@pytest.mark.parametrize("module", [attention_workloads, kernel_workloads])
def test_every_workload_runs_and_is_bounded_by_a_limit_of_the_processor(
    module: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    # One cache and one weight each, instead of as many as no cache of the processor holds.
    for name in ("_CACHED_BYTES", "_READ_BYTES"):
        monkeypatch.setattr(module, name, 64 << 20, raising=False)
    limits = {"read", "update", "float32", *_native.arithmetic_limits(1, 0.01)}
    workloads = module.torchyard_workloads("cpu")
    assert workloads
    for workload in workloads:
        assert limits & set(workload.limits), workload.name
        assert workload.amount > 0
        workload.prepare()()


@pytest.mark.sweep
def test_the_processor_gives_its_limits_to_the_registry() -> None:
    found = torchyard.registry().speed_limits("cpu")
    assert isinstance(found, torchyard.SpeedLimits)
    assert {"float32", "read", "update"} <= found.per_second.keys()
    assert found.tune == "torchyard autotune"
