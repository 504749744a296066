"""The simulated device in the place of ``mps``, with operators that it lacks or computes wrong."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

import pytest
import torch
from torch import Tensor
from torch.library import Library, fallthrough_kernel, register_kernel

from plugins.simulated.tests.apple.torch_list import absent
from torchyard_mps import checks

__all__ = ["DEVICE", "failing", "falling", "missing", "plays_mps", "unimplemented", "wrong"]

DEVICE: Final = "simulated"
_KEY: Final = "PrivateUse1"


@contextmanager
def missing(*operators: str) -> Iterator[None]:
    """Take operators of ATen from the device: torch's dispatcher then finds no kernel."""
    with _library() as library:
        for operator in operators:
            library.impl(operator, fallthrough_kernel, _KEY)
        yield


@contextmanager
def unimplemented(*operators: str) -> Iterator[None]:
    """Refuse operators of ATen in the way of torch for ``mps``: a kernel for all others raises."""

    def refusing(operator: str) -> Callable[..., Any]:
        def refuses(*given: Any, **named: Any) -> Any:
            raise NotImplementedError(
                f"The operator 'aten::{operator}' is not currently implemented for the MPS device. "
                "It may be computed on the CPU."
            )

        return refuses

    with _library() as library:
        for operator in operators:
            register_kernel(f"aten::{operator}", DEVICE, refusing(operator), lib=library)
        yield


@contextmanager
def falling(*operators: str) -> Iterator[None]:
    """Compute operators of ATen on the CPU, with the warning of torch's fallback of ``mps``."""
    with _library() as library:
        for operator in operators:
            register_kernel(f"aten::{operator}", DEVICE, _fallback(operator), lib=library)
        yield


@contextmanager
def wrong(*operators: str) -> Iterator[None]:
    """Compute operators of ATen wrong: results are off by 1."""
    with _library() as library:
        for operator in operators:
            kernel = _changed(operator, lambda values: values + 1)
            register_kernel(f"aten::{operator}", DEVICE, kernel, lib=library)
        yield


@contextmanager
def failing(*operators: str) -> Iterator[None]:
    """Let operators of ATen fail as on a version of macOS that is too old."""

    def fails(*given: Any, **named: Any) -> Any:
        raise RuntimeError("needs macOS 99\nand is not there")

    with _library() as library:
        for operator in operators:
            register_kernel(f"aten::{operator}", DEVICE, fails, lib=library)
        yield


@contextmanager
def plays_mps() -> Iterator[None]:
    """Have torchyard's checks find the device in the place of ``mps``, with 3 GiB of 16 used.

    It has the operators that torch's own list has for Apple GPUs.
    """
    with pytest.MonkeyPatch.context() as patch, unimplemented(*absent()):
        patch.setattr(checks, "DEVICE", DEVICE)
        patch.setattr(torch.backends.mps, "is_available", lambda: True)
        patch.setattr(torch.mps, "driver_allocated_memory", lambda: 3 << 30)
        patch.setattr(torch.mps, "recommended_max_memory", lambda: 16 << 30)
        yield


@contextmanager
def _library() -> Iterator[Library]:
    with warnings.catch_warnings():
        # torch says that kernels are overridden, which is what is wanted.
        warnings.filterwarnings("ignore", "(?s).*[Oo]verriding a previously registered kernel")
        made = [Library("aten", "IMPL")]  # type: ignore[no-untyped-call]
        try:
            yield made[0]
        finally:
            # Nothing holds it then, and torch takes its kernels back.
            made.clear()


def _fallback(operator: str) -> Callable[..., Any]:
    def kernel(*given: Any, **named: Any) -> Any:
        warnings.warn(
            f"The operator 'aten::{operator}' is not currently supported on the MPS backend and "
            "will fall back to run on the CPU. This may have performance implications.",
            stacklevel=1,
        )
        return computed(*given, **named)

    computed = _changed(operator, lambda values: values)
    return kernel


def _changed(operator: str, change: Callable[[Tensor], Tensor]) -> Callable[..., Any]:
    """Return a kernel that computes on the CPU and changes the results."""
    name, _, overload = operator.partition(".")
    compute = getattr(getattr(torch.ops.aten, name), overload or "default")

    def kernel(*given: Any, **named: Any) -> Any:
        device = next(one.device for one in given if isinstance(one, Tensor))
        outputs = {key: one for key, one in named.items() if isinstance(one, Tensor)}
        host = {key: one.cpu() if isinstance(one, Tensor) else one for key, one in named.items()}
        result = compute(*[one.cpu() if isinstance(one, Tensor) else one for one in given], **host)
        parts = result if isinstance(result, tuple) else (result,)
        moved = [change(part).to(device) for part in parts]
        if outputs:
            moved = [
                out.resize_(part.shape).copy_(part)
                for out, part in zip(outputs.values(), moved, strict=True)
            ]
        return tuple(moved) if isinstance(result, tuple) else moved[0]

    return kernel
