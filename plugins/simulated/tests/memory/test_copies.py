"""Copies of which torch's kernel needs memory of its own, and factories under a default device."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor


# torch copies transposed matrices of 60 rows and columns, and larger ones, block by block.
@pytest.mark.parametrize("rows", [59, 60, 61, 130])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64, torch.complex64])
def test_transposed_matrices_are_copied(rows: int, dtype: torch.dtype) -> None:
    host = torch.arange(rows * 70).reshape(rows, 70).to(dtype)
    device = host.to("simulated")
    assert torch.equal(device.t().contiguous().cpu(), host.t())
    assert torch.equal(device.t().cpu(), host.t())
    assert torch.equal(host.t().to("simulated").cpu(), host.t())
    assert torch.equal(torch.empty_like(device).copy_(host.t().contiguous().t()).cpu(), host)
    assert torch.equal(device.t().to("simulated:1").contiguous().cpu(), host.t())
    assert torch.equal(device.t().to(torch.float64).contiguous().cpu(), host.t().to(torch.float64))


def test_transposed_matrices_are_copied_in_a_graph() -> None:
    host = torch.arange(64.0 * 64).reshape(64, 64)
    device = host.to("simulated")
    graph = torch.accelerator.Graph()
    with torch.Stream("simulated"), graph:
        transposed = device.t().contiguous()
    graph.replay()
    assert torch.equal(transposed.cpu(), host.t())


def test_transposed_matrices_are_written_by_other_operators() -> None:
    host = torch.linspace(-1, 1, 64 * 64).reshape(64, 64)
    device = host.to("simulated")
    torch.mm(device, device, out=device.new_empty(64, 64).t())
    torch.testing.assert_close(device.t().add_(device.clone()).cpu(), host.t().add(host))


def test_copies_are_not_cast_inside_autocast() -> None:
    host = torch.randn(64, 64)
    with torch.autocast("simulated", dtype=torch.bfloat16):
        copied = host.to("simulated").t().contiguous()
    assert torch.equal(copied.cpu(), host.t())


_FACTORIES: dict[str, Callable[[], Any]] = {
    "arange": lambda: torch.arange(3),
    "empty list": lambda: torch.tensor([]),
    "eye": lambda: torch.eye(3),
    "fftfreq": lambda: torch.fft.fftfreq(4),
    "full": lambda: torch.full((2,), 3.0),
    "hann_window": lambda: torch.hann_window(4),
    "linspace": lambda: torch.linspace(0, 1, 5),
    "logspace": lambda: torch.logspace(0, 1, 5),
    "scalar_tensor": lambda: torch.scalar_tensor(2.0),
    "tril_indices": lambda: torch.tril_indices(3, 3),
    "triu_indices": lambda: torch.triu_indices(3, 3),
    "vander": lambda: torch.linalg.vander(torch.arange(3.0)),
    "no rows": lambda: torch.zeros(0, 60).t().contiguous(),
    "cat of empty tensors": lambda: torch.cat([torch.zeros(0), torch.zeros(0)]),
    "block_diag of nothing": lambda: torch.block_diag(),
}
_REFUSED: dict[str, Callable[[], Any]] = {
    "cat of nothing": lambda: torch.cat([]),
    "stack of nothing": lambda: torch.stack([]),
    "foreach of nothing": lambda: torch._foreach_add([], 1.0),
    "foreach in place of nothing": lambda: torch._foreach_mul_([], 1.0),
    "norms of nothing": lambda: torch._foreach_norm([]),
}


@pytest.mark.parametrize("name", _FACTORIES)
def test_a_factory_gives_the_cpus_values_on_the_default_device(name: str) -> None:
    expected: Tensor = _FACTORIES[name]()
    with torch.device("simulated"):
        got: Tensor = _FACTORIES[name]()
    assert got.dtype == expected.dtype
    assert got.stride() == expected.stride()
    torch.testing.assert_close(got.cpu(), expected)


@pytest.mark.parametrize("name", _REFUSED)
def test_what_takes_no_empty_list_says_so_as_on_the_cpu(name: str) -> None:
    with pytest.raises((RuntimeError, ValueError)) as expected:
        _REFUSED[name]()
    with torch.device("simulated"), pytest.raises(expected.type) as got:
        _REFUSED[name]()
    assert str(got.value) == str(expected.value)
