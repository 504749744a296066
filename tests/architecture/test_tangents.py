"""No op drops a tangent: each is registered where forward mode and torch.func find its rules.

An op that has neither a kernel for autograd nor one where torch.func begins is computed under both
as if its inputs were constants, in silence.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch

from torchyard import Operators

# Of integers to integers, which have no derivatives.
CONSTANT = {"packed_blocks"}


def operators() -> list[Operators]:
    import torchyard_attention._ops._operators
    import torchyard_collectives._ops.operation
    import torchyard_kernels._operators

    return [
        torchyard_attention._ops._operators.OPERATORS,
        torchyard_collectives._ops.operation.OPERATORS,
        torchyard_kernels._operators.OPERATORS,
    ]


def silent(name: str) -> bool:
    """Return whether nothing of an op notices a dual tensor or a level of torch.func."""
    registered = torch._C._dispatch_dump(name)
    return "\nAutograd[alias]:" not in registered


def names() -> list[str]:
    found = []
    for package in operators():
        for name in package._calls.keys() - CONSTANT:
            found += [
                f"{package.namespace}::{name}",
                f"{package.namespace}::{name}.{package.overload}",
            ]
    return sorted(found)


@pytest.mark.parametrize("name", names())
def test_no_op_drops_a_tangent(name: str) -> None:
    assert not silent(name), f"{name}: give Operators.define a gradient, jvp, vmap or transformed"


def test_an_op_without_rules_is_found() -> None:
    library: Any = torch.library.Library("torchyard_tests_silent", "DEF")  # type: ignore[no-untyped-call]
    library.define("copy(Tensor x) -> Tensor")
    library.impl("copy", lambda x: x.clone(), "CompositeExplicitAutograd")
    assert silent("torchyard_tests_silent::copy")
    x = torch.ones(2)
    op = torch.ops.torchyard_tests_silent.copy.default
    assert not torch.func.jvp(op, (x,), (x,))[1].any()
    library._destroy()
