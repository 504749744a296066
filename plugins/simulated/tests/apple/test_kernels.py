"""Our kernels in Metal, launched with tensors of a device, compute what they compute of the CPU's.

The CPU's results are held to float64 by the tests of torchyard-mps.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

import pytest
import torch
from torch import Tensor

from packages.attention.tests.attention_calls import call_of as attention_call
from packages.kernels.tests.pointwise.calls import call_of as map_of
from plugins.mps.tests.attention.gradient_runs import given_for
from plugins.mps.tests.emulated import emulated
from plugins.simulated.tests.apple.stand_in import DEVICE
from torchyard_conformance._kernels._tensors import mapped, named
from torchyard_kernels.linear.contract import LinearCall
from torchyard_kernels.recurrent.contract import CellWeights, RecurrentCall, RecurrentKind
from torchyard_kernels.topk.contract import Order, TopKCall
from torchyard_mps import distributions
from torchyard_mps.attention import backward, forward
from torchyard_mps.linear import multiply
from torchyard_mps.pointwise import compute
from torchyard_mps.recurrent import forward as recurrent_forward
from torchyard_mps.topk import select


def _drawn(*shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape)))


def _layers() -> RecurrentCall:
    weights = CellWeights(_drawn(20, 4), _drawn(20, 5), _drawn(20), _drawn(20))
    state = _drawn(1, 3, 5)
    return RecurrentCall(
        RecurrentKind.LSTM, _drawn(6, 3, 4), state, state * 2, (weights,), 1, False
    )


def _sample(parameters: tuple[Tensor, Tensor]) -> Tensor:
    generator = torch.Generator().manual_seed(5)
    return distributions.Gamma(*parameters).rsample((3,)) + distributions.Normal(
        *parameters
    ).sample((3,), generator)


def _gradients(given: tuple[Any, ...]) -> Any:
    call, *inputs = given
    return backward(call, *inputs)


def _gradients_of_attention() -> tuple[Any, ...]:
    call = attention_call("grouped-2")
    return (call, *given_for(call))


def _maps() -> Any:
    shapes = [(3, 4), (70,)]
    lists = [[_drawn(*shape) for shape in shapes], [_drawn(*shape) + 1 for shape in shapes]]
    return map_of(lambda x, y: torch.tanh(x) * y, *lists)


# Name -> (what is given, what computes it).
_CALLS: Final[dict[str, tuple[Callable[[], Any], Callable[[Any], Any]]]] = {
    "attention": (lambda: attention_call("causal-half"), forward),
    "attention, grouped, with scores": (lambda: attention_call("grouped-2"), forward),
    "attention, few queries": (lambda: attention_call("lengths-1-70"), forward),
    "attention, gradients": (_gradients_of_attention, _gradients),
    "linear": (lambda: LinearCall(_drawn(7, 40), _drawn(12, 40), _drawn(12)), multiply),
    "topk": (lambda: TopKCall(_drawn(5, 300), 9, True, Order.SORTED), select),
    "LSTM": (_layers, recurrent_forward),
    "foreach_map": (_maps, compute),
    "distributions": (lambda: (_drawn(4).exp(), _drawn(4, 1).exp()), _sample),
}


@pytest.mark.parametrize("name", _CALLS)
def test_a_kernel_reads_and_fills_tensors_of_the_device(name: str) -> None:
    make, compute_ = _CALLS[name]
    given = make()
    torch.manual_seed(3)
    with emulated():
        expected = compute_(given)
    torch.manual_seed(3)
    with emulated():
        found = compute_(mapped(given, lambda _, tensor: tensor.to(DEVICE)))
    results = dict(named(found))
    assert {tensor.device.type for tensor in results.values()} == {DEVICE}
    for path, tensor in named(expected):
        assert torch.equal(results[path].cpu(), tensor), path


def test_without_what_runs_launches_the_device_is_refused_by_name() -> None:
    call = replace(attention_call("plain"), query=torch.zeros(2, 2, 40, 16, device=DEVICE))
    with pytest.raises(ValueError, match="attention_forward: expected tensors on mps"):
        forward(call)
