"""The law of kernels about forward-mode differentiation of the op around an implementation."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from torchyard import use
from torchyard_conformance._kernels._case import Case, Given, last_word
from torchyard_conformance._kernels._kernel import Kernel
from torchyard_conformance._kernels._tensors import mapped, named
from torchyard_conformance._outcome import NotSupported
from torchyard_conformance._trials._tangents import keeps_tangents

__all__ = ["drops_no_tangent"]


def drops_no_tangent(kernel: Kernel, case: Case) -> dict[str, float]:
    """Differentiate the op in forward mode, with the implementation demanded in it."""
    given = kernel.accept(case)
    inputs = dict(_moving(case, given))
    if not inputs:
        raise NotSupported("takes no floating-point tensor that a derivative is for")

    def through(
        compute: Callable[[Given], Sequence[tuple[str, Tensor]]], start: Given
    ) -> Callable[..., list[Tensor]]:
        def function(*tensors: Tensor) -> list[Tensor]:
            new = dict(zip(inputs, tensors, strict=True))
            moved = mapped(start, lambda path, tensor: new.get(path, tensor))
            return [found for _, found in compute(moved) if found.is_floating_point()]

        return function

    def public(moved: Given) -> list[tuple[str, Tensor]]:
        return list(named(case.public(moved)))

    there = case.given()
    rough = through(lambda moved: list((case.naive(moved) or {}).items()), there)
    with torch.no_grad():
        exists = case.naive(there) is not None
    op = kernel.contract.partition("/")[0]
    with use(**{op: kernel.name}):
        return keeps_tangents(
            through(public, given),
            list(inputs.values()),
            through(lambda moved: list(case.exact(moved).items()), there),
            rough if exists else None,
        )


def _moving(case: Case, given: Given) -> list[tuple[str, Tensor]]:
    """Return what tangents are given to."""
    return [
        (path, tensor)
        for path, tensor in named(given)
        if tensor.is_floating_point() and not {path, last_word(path)} & case.constant
    ]
