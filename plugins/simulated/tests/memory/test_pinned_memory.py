"""Pinned host memory: known as such, and the only host memory that copies do not wait for."""

from __future__ import annotations

import gc

import torch

from torchyard_simulated import runtime


def test_pinned_tensors_are_cpu_tensors_that_know_it() -> None:
    x = torch.arange(4.0).pin_memory()
    assert x.is_pinned()
    assert x.device.type == "cpu"
    assert x[2:].is_pinned(), "an address inside of the block counts"
    assert not torch.arange(4.0).is_pinned()
    assert x.tolist() == [0, 1, 2, 3]


def test_pinned_bytes_are_counted_and_returned() -> None:
    gc.collect()
    before = runtime.pinned_bytes()
    x = torch.empty(1000, dtype=torch.uint8, pin_memory=True)
    assert runtime.pinned_bytes() == before + 1000
    del x
    assert runtime.pinned_bytes() == before


def test_a_copy_from_pinned_memory_reads_it_late() -> None:
    source = torch.ones(4, pin_memory=True)
    x = source.to("simulated", non_blocking=True)
    source.fill_(2)  # too early: the copy has not happened yet
    assert x.tolist() == [2, 2, 2, 2]


def test_a_copy_from_pageable_memory_reads_it_at_once() -> None:
    source = torch.ones(4)
    x = source.to("simulated", non_blocking=True)
    source.fill_(2)
    assert x.tolist() == [1, 1, 1, 1]


def test_a_copy_to_pinned_memory_lands_at_the_synchronization() -> None:
    x = torch.ones(4, device="simulated")
    target = torch.zeros(4, pin_memory=True)
    target.copy_(x, non_blocking=True)
    assert target.tolist() == [0, 0, 0, 0]
    torch.accelerator.synchronize()
    assert target.tolist() == [1, 1, 1, 1]


def test_a_copy_in_flight_keeps_its_pinned_source() -> None:
    source = torch.full((1000,), 3.0, pin_memory=True)
    x = source.to("simulated", non_blocking=True)
    del source
    gc.collect()
    assert x.sum().item() == 3000


def test_a_data_loader_pins_for_this_device() -> None:
    data = torch.utils.data.TensorDataset(torch.arange(8.0))
    loader = torch.utils.data.DataLoader(data, batch_size=4, pin_memory=True)
    batches = [batch for (batch,) in loader]
    assert all(batch.is_pinned() for batch in batches)
    assert torch.cat(batches).tolist() == list(range(8))
