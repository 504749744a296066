"""An operator that a machine's graphs do not hold is refused by name, wherever it is called."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

import torchyard
from torchyard_attention import flex_attention
from torchyard_kernels import UncapturableError, capture
from torchyard_kernels.graphs import _faults

_DEVICE = "simulated"
# What torch's attention alone calls on this device, which has no fused one.
_OPERATOR = "aten::_safe_softmax"


@pytest.fixture(autouse=True)
def faults(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give this device the fault that graphs of Intel's GPUs have with torch 2.13."""
    minor = ".".join(torch.__version__.split(".")[:2])
    own = replace(_faults.FAULTS[0], device=_DEVICE, operator=_OPERATOR, torch=minor)
    monkeypatch.setattr(_faults, "FAULTS", (own,))


def _qkv() -> list[Tensor]:
    return [torch.randn(1, 2, 8, 16, device=_DEVICE) for _ in range(3)]


def _refused(fn: object, *args: Tensor) -> UncapturableError:
    with pytest.raises(UncapturableError, match="waits for an event from outside") as caught:
        capture(fn, *args)  # type: ignore[arg-type]
    assert caught.value.op == f"{_OPERATOR.replace('::', '.')}.default"
    assert caught.value.line.startswith(__file__)
    assert "SDPBackend.MATH" in str(caught.value)
    return caught.value


def test_the_operator_is_refused_at_its_line() -> None:
    error = _refused(lambda q, k, v: F.scaled_dot_product_attention(q, k, v) + 1, *_qkv())
    assert "issues/5069" in str(error)


def test_it_is_refused_inside_of_an_op_of_torchyard() -> None:
    with torchyard.use(attention="attention.sdpa"):
        error = _refused(lambda q, k, v: flex_attention(q, k, v), *_qkv())
    assert "attention.sdpa calls it" in str(error)


def test_what_the_hint_names_is_captured() -> None:
    q, k, v = _qkv()
    with torchyard.use(attention="attention.tiled"):
        graph = capture(lambda q: flex_attention(q, k, v), q)
    assert graph.mechanism == "torch.accelerator.Graph"
    wanted = F.scaled_dot_product_attention(q.cpu(), k.cpu(), v.cpu())
    torch.testing.assert_close(graph(q).cpu(), wanted)


def test_without_the_operator_a_graph_is_captured() -> None:
    x = torch.ones(3, device=_DEVICE)
    assert capture(lambda x: x * 2, x)(x).tolist() == [2, 2, 2]


def test_memory_that_is_handed_to_another_library_is_refused() -> None:
    """As a library does that submits to a stream that it caches, which a capture does not see."""
    with pytest.raises(UncapturableError, match=r"Tensor\.data_ptr cannot be captured") as caught:
        capture(lambda x: x * (x.data_ptr() > 0), torch.ones(3, device=_DEVICE))
    assert caught.value.line.startswith(__file__)
