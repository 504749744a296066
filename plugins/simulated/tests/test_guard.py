"""Devices: count, current device, and what torch.accelerator knows of them."""

from __future__ import annotations

import pytest
import torch


def test_the_device_is_torchs_accelerator() -> None:
    accelerator = torch.accelerator.current_accelerator()
    assert accelerator == torch.device("simulated")
    assert torch.accelerator.is_available()
    assert torch.accelerator.device_count() == 2
    assert torch.get_device_module("simulated").device_count() == 2


def test_new_tensors_are_on_the_current_device() -> None:
    with torch.accelerator.device_index(1):
        assert torch.accelerator.current_device_index() == 1
        assert torch.empty(1, device="simulated").device == torch.device("simulated:1")
    assert torch.empty(1, device="simulated").device == torch.device("simulated:0")


def test_operators_follow_their_tensors_and_not_the_current_device() -> None:
    x = torch.ones(3, device="simulated:1")
    assert (x * 2).device == torch.device("simulated:1")
    assert torch.cat([x, x]).device == torch.device("simulated:1")


def test_a_tensor_moves_between_devices() -> None:
    x = torch.arange(4.0, device="simulated:0")
    y = x.to("simulated:1")
    y += 1
    assert x.tolist() == [0, 1, 2, 3]
    assert y.tolist() == [1, 2, 3, 4]


@pytest.mark.parametrize("index", [2, 7])
def test_a_device_that_does_not_exist_is_refused(index: int) -> None:
    with pytest.raises(RuntimeError, match=f"expected 0 to 1, got {index}"):
        torch.empty(1, device=f"simulated:{index}")
    with pytest.raises(RuntimeError, match=f"expected 0 to 1, got {index}"):
        torch.accelerator.set_device_index(index)


def test_tensors_of_two_devices_do_not_mix() -> None:
    x = torch.ones(3, device="simulated")
    for other in (torch.ones(3), torch.ones(3, device="simulated:1")):
        with pytest.raises(RuntimeError, match="on the same device"):
            torch.add(x, other)


def test_a_cpu_number_joins_a_device_tensor() -> None:
    x = torch.ones(3, device="simulated")
    assert (x * torch.tensor(2.0)).tolist() == [2, 2, 2]


def test_capability_lists_the_dtypes() -> None:
    dtypes = torch.accelerator.get_device_capability()["supported_dtypes"]
    assert {torch.float32, torch.bfloat16, torch.int64} <= dtypes


def test_tensors_and_modules_have_the_devices_own_methods() -> None:
    assert torch.ones(1).simulated().is_simulated
    assert next(torch.nn.Linear(1, 1).simulated().parameters()).is_simulated
