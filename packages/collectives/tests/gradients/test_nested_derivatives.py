"""Derivatives of derivatives, nested in each order of modes, against the plain formulas."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

import pytest
import torch
import torch.distributed as dist
from torch import Tensor
from torch.autograd import forward_ad
from torch.func import grad, hessian, jacfwd, jacrev, jvp, vmap

import torchyard_collectives as tc
from packages.collectives.tests.ranks import run_ranks

Function = Callable[[Tensor], Tensor]

# On one rank nothing moves and sums have one term, so each op's formula is that of its factors.
_SAME: Final[Function] = lambda x: x  # noqa: E731
_OPS: Final[dict[str, tuple[Function, Function]]] = {
    **{
        f"all_reduce {op}": (lambda x, op=op: tc.all_reduce(x, op, grad="sum"), _SAME)  # type: ignore[misc]
        for op in ("sum", "avg", "max", "min", "product")
    },
    "all_reduce, replicated": (lambda x: tc.all_reduce(x, grad="replicated"), _SAME),
    "all_reduce premul_sum": (
        lambda x: tc.all_reduce(x, tc.PremulSum(x.cos()), grad="sum"),
        lambda x: x * x.cos(),
    ),
    "all_gather": (lambda x: tc.all_gather(x, grad="sum"), _SAME),
    "all_gather uneven": (lambda x: tc.all_gather(x, sizes=[2], grad="sum"), _SAME),
    "reduce_scatter": (lambda x: tc.reduce_scatter(x, grad="sum"), _SAME),
    "reduce_scatter max": (lambda x: tc.reduce_scatter(x, op="max", grad="sum"), _SAME),
    "reduce_scatter product": (lambda x: tc.reduce_scatter(x, op="product", grad="sum"), _SAME),
    "all_to_all": (lambda x: tc.all_to_all(x, grad="sum"), _SAME),
    "broadcast": (lambda x: tc.broadcast(x, 0, grad="sum"), _SAME),
    "reduce": (lambda x: tc.reduce(x, 0, grad="sum"), _SAME),
    "gather": (lambda x: tc.gather(x, 0, grad="sum"), _SAME),
    "scatter": (lambda x: tc.scatter(x, 0, grad="sum"), _SAME),
    "permute": (lambda x: tc.permute(x, [(0, 0)], grad="sum"), _SAME),
    "shift": (lambda x: tc.shift(x, grad="sum"), _SAME),
    "shard": (lambda x: tc.shard(x, grad="sum"), _SAME),
    "vary": (lambda x: tc.vary(x, grad="sum"), _SAME),
    "tree_all_reduce": (lambda x: tc.tree_all_reduce({"a": x}, grad="sum")["a"], _SAME),
    "tree_all_gather": (lambda x: tc.tree_all_gather([x], grad="sum")[0], _SAME),
    "tree_broadcast": (lambda x: tc.tree_broadcast([x], 0, grad="sum")[0], _SAME),
    "tree_reduce_scatter": (lambda x: tc.tree_reduce_scatter([x], grad="sum")[0], _SAME),
    "order": (lambda x: tc.order(x, x.sin()), _SAME),
    "barrier": (lambda x: tc.order(x, tc.barrier(after=x.sin())), _SAME),
}


def _directional(f: Function) -> Function:
    return lambda x: jvp(f, (x,), (x.detach().cos(),))[1]


def _dual(f: Function) -> Function:
    def derivative(x: Tensor) -> Tensor:
        with forward_ad.dual_level():
            y = f(forward_ad.make_dual(x, torch.ones_like(x)))
            return forward_ad.unpack_dual(y).tangent.clone()

    return derivative


def _summed(f: Function) -> Function:
    return lambda x: f(x).sum()


_NESTED: Final[dict[str, Callable[[Function], Function]]] = {
    "jacfwd(jacfwd)": lambda f: jacfwd(jacfwd(f)),
    "jacfwd(jacfwd(jacfwd))": lambda f: jacfwd(jacfwd(jacfwd(f))),
    "jacfwd(jacrev)": lambda f: jacfwd(jacrev(f)),
    "jacrev(jacfwd)": lambda f: jacrev(jacfwd(f)),
    "jacfwd(jacrev(jacfwd))": lambda f: jacfwd(jacrev(jacfwd(f))),
    "jvp(jvp)": lambda f: _directional(_directional(f)),
    "jvp(jvp(jvp))": lambda f: _directional(_directional(_directional(f))),
    "jvp(grad)": lambda f: _directional(grad(_summed(f))),
    "grad(jvp(jvp))": lambda f: grad(_summed(_directional(_directional(f)))),
    "hessian": lambda f: hessian(_summed(f)),
    "dual numbers of grad": lambda f: _dual(grad(_summed(f))),
    "vmap(jacfwd(jacfwd))": lambda f: lambda x: vmap(jacfwd(jacfwd(f)))(torch.stack([x, x + 1])),
}

# jacfwd and jacrev map over a basis.
_MAPPED: Final = {name for name in _NESTED if "jac" in name or "hessian" in name}


@pytest.fixture(scope="module", autouse=True)
def group() -> Iterator[None]:
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


@pytest.mark.parametrize("name", _OPS)
def test_nested_derivatives_are_those_of_the_formula(name: str) -> None:
    op, plain = _OPS[name]
    x = torch.tensor([0.7, -1.3], dtype=torch.float64)
    for nested in _NESTED:
        _check(nested, op, plain, x)


@pytest.mark.parametrize("op", ["sum", "avg", "product"])
def test_nested_forward_mode_of_complex_numbers_is_that_of_the_formula(op: str) -> None:
    x = torch.tensor([2 + 1j, -1.3j], dtype=torch.complex128)
    for nested in ("jvp(jvp)", "jvp(jvp(jvp))"):
        _check(nested, lambda x: tc.all_reduce(x, op, grad="sum"), _SAME, x)


@pytest.mark.parametrize("nested", _NESTED)
def test_async_op_is_right_or_refuses_vmap(nested: str) -> None:
    x = torch.tensor([0.7, -1.3], dtype=torch.float64)

    def op(x: Tensor) -> Tensor:
        return tc.all_reduce(x, grad="sum", async_op=True).wait()

    if nested not in _MAPPED:
        _check(nested, op, _SAME, x)
        return
    with pytest.raises(tc.TransformError, match=r"async_op.*torch\.func\.vmap"):
        _check(nested, op, _SAME, x)


def _check(nested: str, op: Function, plain: Function, x: Tensor) -> None:
    found = _NESTED[nested](lambda x: op(x**3) ** 2)(x)
    expected = _NESTED[nested](lambda x: plain(x**3) ** 2)(x)
    assert expected.abs().max() > 1
    torch.testing.assert_close(found, expected, msg=lambda text: f"{nested}: {text}")


def _second_of_reductions(dtype: torch.dtype, ops: tuple[str, ...]) -> list[Tensor]:
    x = torch.tensor([2 + 0.5j, 3 - 1j] if dtype.is_complex else [2.0, 3.0], dtype=dtype)
    result = []
    for op in ops:

        def f(x: Tensor, op: str = op) -> Tensor:
            return tc.all_reduce(x**3, op, grad="sum") ** 2

        result.append(_directional(_directional(f))(x[dist.get_rank()]))
    return result


@pytest.mark.sweep
@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128])
def test_nested_forward_mode_has_the_other_ranks_tangents(dtype: torch.dtype) -> None:
    """Against the same derivative of the formula of both ranks' numbers."""
    x = torch.tensor([2 + 0.5j, 3 - 1j] if dtype.is_complex else [2.0, 3.0], dtype=dtype)
    plain: dict[str, Function] = {"sum": torch.sum, "product": torch.prod}
    if not dtype.is_complex:
        plain["max"] = torch.amax
    expected = []
    for reduced in plain.values():

        def f(x: Tensor, reduced: Function = reduced) -> Tensor:
            return reduced(x**3) ** 2

        expected.append(_directional(_directional(f))(x))
    for found in run_ranks(2, _second_of_reductions, dtype, tuple(plain)):
        torch.testing.assert_close(found, expected)
