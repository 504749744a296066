"""``torchyard_kernels.capture`` on a device with graphs of its own."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from torchyard_kernels import GraphBucketError, UncapturableError, capture

_DEVICE = "simulated"


def test_a_function_is_captured_by_the_devices_own_graph() -> None:
    weight = torch.randn(4, 3, device=_DEVICE)
    graph = capture(lambda x: (x @ weight).relu().sum(-1), torch.zeros(2, 4, device=_DEVICE))
    assert graph.mechanism == "torch.accelerator.Graph"
    for _ in range(2):
        x = torch.randn(2, 4, device=_DEVICE)
        expected = (x.cpu() @ weight.cpu()).relu().sum(-1)
        torch.testing.assert_close(graph(x).cpu(), expected)
        graph.check(x)
    with pytest.raises(GraphBucketError, match="got"):
        graph(torch.zeros(3, 4, device=_DEVICE))


def test_state_is_changed_by_replays_and_not_by_the_capture() -> None:
    total = torch.zeros(3, device=_DEVICE)

    def add(x: Tensor) -> Tensor:
        total.add_(x)
        return total * 2

    graph = capture(add, torch.ones(3, device=_DEVICE), state=[total])
    assert total.tolist() == [0, 0, 0]
    one = torch.ones(3, device=_DEVICE)
    assert graph(one).tolist() == [2, 2, 2]
    assert graph(one).tolist() == [4, 4, 4]
    graph.check(one)
    assert total.tolist() == [2, 2, 2]


def test_replays_draw_the_numbers_that_eager_draws() -> None:
    def fn(x: Tensor) -> Tensor:
        return x + torch.rand(4, device=_DEVICE)

    graph = capture(fn, torch.zeros(4, device=_DEVICE))
    torch.manual_seed(5)
    expected = [fn(torch.zeros(4, device=_DEVICE)).tolist() for _ in range(2)]
    torch.manual_seed(5)
    found = [graph(torch.zeros(4, device=_DEVICE)).tolist() for _ in range(2)]
    assert found == expected


def test_what_waits_for_the_device_is_refused_by_name() -> None:
    with pytest.raises(UncapturableError, match=r"Tensor\.item cannot be captured") as caught:
        capture(lambda x: x * x.sum().item(), torch.ones(3, device=_DEVICE))
    assert caught.value.line.startswith(__file__)
    graph = capture(lambda x: x * x.sum(), torch.ones(3, device=_DEVICE))
    assert graph(torch.ones(3, device=_DEVICE)).tolist() == [3, 3, 3]
