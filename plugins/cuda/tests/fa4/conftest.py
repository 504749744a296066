"""CuTe DSL in the tests of FlashAttention-4's adapter: torch in its place."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest

from plugins.cuda.tests.fa4.cute_on_torch import modules


@pytest.fixture
def cute(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let generated functions import torch in the place of CuTe DSL."""
    for name, module in modules().items():
        monkeypatch.setitem(sys.modules, name, module)
    before = set(sys.modules)
    yield
    for name in set(sys.modules) - before:
        if name.startswith("torchyard_triton.generated."):
            del sys.modules[name]
