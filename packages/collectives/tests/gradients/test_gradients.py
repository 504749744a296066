"""Gradients of every op against the dense oracle, by each of torch's ways.

Here a part of the table; the whole of it is the nox session ``collectives``.
"""

from __future__ import annotations

import pytest

from .cases import CASES, CONVENTIONS, GradientCase
from .checks import check_gradients, check_values

_NAMES = [case.name for case in CASES]
# Those whose "replicated" is not their "sum".
_INVARIANT = [case.name for case in CASES if case.typed[1][1] == "invariant"]
# One op of each kind of derivative.
_COMPILED = ("all_reduce avg", "all_reduce max", "all_gather uneven", "broadcast", "send, recv")
_FEW = ("all_reduce product, zeros", "reduce_scatter uneven", "all_to_all uneven", "gather uneven")


@pytest.mark.parametrize("name", _NAMES)
def test_eager_double_and_forward_derivatives_are_those_of_the_dense_program(name: str) -> None:
    check_gradients(name, "sum", 2, "eager", "double", "forward")


@pytest.mark.parametrize("name", _INVARIANT)
def test_derivatives_of_one_shared_loss_are_those_of_the_dense_program(name: str) -> None:
    check_gradients(name, "replicated", 2, "eager", "double", "func.grad")


@pytest.mark.parametrize("name", [name for name in _NAMES if name != "async_op"])
def test_transforms_of_torch_func_are_right(name: str) -> None:
    check_gradients(name, "sum", 2, "jvp", "vmap of grad", "grad of grad")


@pytest.mark.parametrize("convention", CONVENTIONS)
@pytest.mark.parametrize("name", _FEW)
def test_conventions_hold_on_three_ranks(name: str, convention: str) -> None:
    check_gradients(name, convention, 3, "eager", "double")


@pytest.mark.parametrize("name", ["all_reduce max, ties", "permute partial", "send, recv"])
def test_four_ranks_agree(name: str) -> None:
    check_gradients(name, "sum", 4, "eager", "double")


@pytest.mark.sweep
@pytest.mark.parametrize("convention", ["sum", "replicated"])
@pytest.mark.parametrize("name", _COMPILED)
def test_compiled_gradients_are_those_of_the_dense_program(name: str, convention: str) -> None:
    check_gradients(name, convention, 2, "compile")


@pytest.mark.parametrize("name", [case.name for case in CASES])
def test_derivatives_are_as_right_over_shared_memory(name: str) -> None:
    check_gradients(name, "sum", 2, "eager", "double", backend="shm")


@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_values_are_those_of_the_dense_program(case: GradientCase) -> None:
    check_values(case.name, 2)


# As on a machine with one accelerator.
@pytest.mark.parametrize("name", [case.name for case in CASES if case.least == 1])
def test_one_rank_is_a_group_too(name: str) -> None:
    check_values(name, 1)
    check_gradients(name, "sum", 1, "eager", "forward")
