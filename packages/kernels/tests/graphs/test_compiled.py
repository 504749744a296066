"""Capturing a compiled function leaves it compiled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from torchyard_kernels import capture

from .models import chain


def test_a_compiled_function_is_still_compiled_after_it_was_captured() -> None:
    runs = []

    def backend(graph: Any, inputs: Any) -> Callable[..., Any]:
        return lambda *values: runs.append(1) or graph(*values)

    torch.compiler.reset()
    compiled = torch.compile(chain, backend=backend)
    x, y = torch.randn(3, 4), torch.rand(3, 4)
    expected = compiled(x, y)
    assert torch.equal(capture(compiled, x, y)(x, y), expected)
    before = len(runs)
    assert torch.equal(compiled(x, y), expected)
    assert len(runs) > before
    torch.compiler.reset()
