"""What the kit uses of torch's private parts; nothing else of the kit names them.

| part | tried on | without it |
| --- | --- | --- |
| ``torch._subclasses.fake_tensor.FakeTensorMode`` | 2.13 | laws that need it end unverified |
| ``torch._inductor.metrics.generated_kernel_count`` | 2.13 | device.compile ends unverified |
| ``torch._dynamo``, ``torch._inductor.compile_fx`` | 2.13 | not imported ahead of a law |
"""

from __future__ import annotations

import importlib
from contextlib import suppress
from typing import TYPE_CHECKING

import torch

from torchyard_conformance._outcome import unverified

if TYPE_CHECKING:
    from torch._subclasses.fake_tensor import FakeTensorMode

__all__ = ["fake_tensor_mode", "generated_kernels", "import_what_a_first_call_imports"]


def fake_tensor_mode() -> FakeTensorMode:
    """Return a mode in which ops compute shapes and dtypes, as they do while torch traces.

    Raises:
        Unverified: this torch has no such mode.
    """
    try:
        from torch._subclasses.fake_tensor import FakeTensorMode
    except ImportError:
        unverified(f"torch {torch.__version__} has no torch._subclasses.fake_tensor.FakeTensorMode")
    return FakeTensorMode()


def generated_kernels() -> int:
    """Return how many kernels Inductor has generated in this process.

    Raises:
        Unverified: this torch does not count them.
    """
    try:
        from torch._inductor import metrics

        return int(metrics.generated_kernel_count)
    except (ImportError, AttributeError):
        unverified(f"torch {torch.__version__} has no torch._inductor.metrics")


def import_what_a_first_call_imports() -> None:
    """Import the modules of torch that a first call may import: they add filters of warnings."""
    for module in ("torch._dynamo", "torch._inductor.compile_fx"):
        with suppress(ModuleNotFoundError):
            importlib.import_module(module)
