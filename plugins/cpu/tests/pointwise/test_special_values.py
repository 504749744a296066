"""What the interpreter of programs makes of infinities, NaN, zeros and denormal numbers."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from torchyard_cpu.pointwise._map import NativePointwise

from .test_values import call_of, isas


@isas
def test_rsqrt_is_within_two_units_and_torchs_of_what_is_no_number(isa: str) -> None:
    # A mantissa of each kind in two binades of either parity, and the edges of the exponents.
    mantissas = 1 + torch.arange(0, 2**23, 997, dtype=torch.float64) / 2**23
    x = torch.cat([mantissas * 2.0**e for e in (0, 1, -126, -125, 126, 127)]).float()
    special = torch.tensor(
        [torch.nan, torch.inf, -torch.inf, 0.0, -0.0, -3.0, -1e-45, 1e-45, 1e-39] * 3
    )
    ((found, of_special),) = NativePointwise(isa)(call_of(torch.rsqrt, [x, special]))

    exact = x.double().rsqrt()
    assert ((found.double() - exact).abs() / exact).max() < 2 * torch.finfo(torch.float32).eps
    torch.testing.assert_close(of_special, torch.rsqrt(special), equal_nan=True)


@isas
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_nan_to_num_is_torchs_whose_bounds_are_the_dtypes(dtype: torch.dtype, isa: str) -> None:
    x = torch.tensor([torch.nan, torch.inf, -torch.inf, 0.0, -2.5] * 5, dtype=dtype)

    def both(x: Tensor) -> tuple[Tensor, Tensor]:
        return torch.nan_to_num(x), torch.nan_to_num(x, 1.0, neginf=-3.0)

    found = [result for (result,) in NativePointwise(isa)(call_of(both, [x]))]

    assert [result.dtype for result in found] == [dtype, dtype]
    assert all(map(torch.equal, found, both(x)))


@isas
def test_what_activations_make_of_infinities_and_nan_is_torchs(isa: str) -> None:
    x = torch.tensor([torch.nan, torch.inf, -torch.inf, 0.0, 0.5, -0.5, 1e38, -1e38] * 5)
    names = "celu elu hardshrink hardtanh leaky_relu selu softplus softshrink".split()

    def every(x: Tensor) -> tuple[Tensor, ...]:
        return tuple(getattr(functional, name)(x) for name in names)

    found = [result for (result,) in NativePointwise(isa)(call_of(every, [x]))]
    for name, result, right in zip(names, found, every(x), strict=True):
        torch.testing.assert_close(result, right, equal_nan=True, msg=f"{name}: {result[:8]}")


@isas
def test_what_is_finite_is_torchs(isa: str) -> None:
    x = torch.tensor([torch.nan, torch.inf, -torch.inf, 0.0, -2.5] * 5)

    def several(x: Tensor) -> tuple[Tensor, ...]:
        return torch.isfinite(x), torch.isposinf(x), torch.isneginf(x), torch.isinf(x)

    found = [result for (result,) in NativePointwise(isa)(call_of(several, [x]))]
    assert all(map(torch.equal, found, several(x)))


@isas
def test_the_sign_of_what_is_no_number_is_torchs(isa: str) -> None:
    x = torch.tensor([torch.nan, torch.inf, -torch.inf, 0.0, -0.0, 1e-45, -1e-45, 3.0] * 3)
    ((found,),) = NativePointwise(isa)(call_of(torch.sign, [x]))
    assert torch.equal(found, torch.sign(x))
