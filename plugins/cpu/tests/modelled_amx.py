"""A pytest plugin: the processor has the matrix tiles that the build computes in memory.

For ``nox -s amx``, whose native module was built with TORCHYARD_AMX_MODEL. Only tests of kernels
that use tiles are kept.
"""

from __future__ import annotations

import pytest

from torchyard._platforms import platform
from torchyard_cpu import _isa, _native

_TILES = frozenset({"amx_tile", "amx_bf16"})


def pytest_configure(config: pytest.Config) -> None:
    found = frozenset(_native.cpu_features())
    if lacking := _isa.feature_sets()["amx"] - found:
        raise pytest.UsageError(
            f"expected a native module that was built with TORCHYARD_AMX_MODEL on a processor with "
            f"AVX-512 BF16, got one that lacks {', '.join(sorted(lacking))}"
        )
    platform._cpu_features = lambda: found  # type: ignore[assignment]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    # In place: the list is pytest's.
    items[:] = [item for item in items if "amx" in item.name]
    if not items:
        raise pytest.UsageError("no test of a kernel that uses tiles was found")
