"""Device memory: separate, counted, limited, and reused in stream order only."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest
import torch

from torchyard_simulated import runtime

_MEGABYTE = 1 << 20


@pytest.fixture(autouse=True)
def empty_device() -> Iterator[None]:
    gc.collect()
    torch.accelerator.empty_cache()
    torch.accelerator.reset_peak_memory_stats()
    yield
    runtime.set_memory_limit(8 << 30)


def test_device_memory_never_aliases_cpu_memory() -> None:
    host = torch.zeros(4)
    device = host.to("simulated")
    host.fill_(1)
    back = device.cpu()
    device.fill_(2)
    assert device.tolist() == [2, 2, 2, 2]
    assert back.tolist() == [0, 0, 0, 0]
    assert host.tolist() == [1, 1, 1, 1]


def test_an_operators_result_does_not_alias_its_inputs() -> None:
    x = torch.ones(4, device="simulated")
    y = x.relu()
    y.fill_(5)
    assert x.tolist() == [1, 1, 1, 1]


def test_allocated_bytes_rise_and_fall() -> None:
    before = torch.accelerator.memory_allocated()
    x = torch.empty(_MEGABYTE, dtype=torch.uint8, device="simulated")
    assert torch.accelerator.memory_allocated() == before + _MEGABYTE
    assert torch.accelerator.memory_allocated(1) == 0
    del x
    assert torch.accelerator.memory_allocated() == before
    assert torch.accelerator.max_memory_allocated() >= before + _MEGABYTE


def test_freed_memory_stays_reserved_until_the_cache_is_emptied() -> None:
    before = torch.accelerator.memory_reserved()
    x = torch.empty(_MEGABYTE, dtype=torch.uint8, device="simulated")
    del x
    assert torch.accelerator.memory_reserved() == before + _MEGABYTE
    torch.accelerator.empty_cache()
    assert torch.accelerator.memory_reserved() == before


def test_statistics_count_allocations() -> None:
    torch.accelerator.reset_accumulated_memory_stats()
    kept = [torch.empty(8, device="simulated") for _ in range(3)]
    stats = torch.accelerator.memory_stats()
    assert stats["allocation.all.allocated"] == 3
    assert stats["allocation.small_pool.allocated"] == 3
    assert stats["requested_bytes.all.current"] >= 3 * 32
    assert len(kept) == 3


def test_memory_info_reports_what_is_left() -> None:
    free, total = torch.accelerator.get_memory_info()
    x = torch.empty(_MEGABYTE, dtype=torch.uint8, device="simulated")
    assert torch.accelerator.get_memory_info() == (free - _MEGABYTE, total)
    assert total == 8 << 30
    assert x.numel() == _MEGABYTE


def test_running_out_of_memory_raises_torchs_error_and_recovers() -> None:
    reserved = torch.accelerator.memory_reserved()
    runtime.set_memory_limit(reserved + 4 * _MEGABYTE)
    x = torch.empty(3 * _MEGABYTE, dtype=torch.uint8, device="simulated")
    with pytest.raises(torch.OutOfMemoryError, match="simulated:0 out of memory"):
        torch.empty(2 * _MEGABYTE, dtype=torch.uint8, device="simulated")
    del x
    # The cached block has the wrong size: it must be released to make room.
    y = torch.empty(4 * _MEGABYTE, dtype=torch.uint8, device="simulated")
    assert y.numel() == 4 * _MEGABYTE


def test_new_memory_is_poisoned() -> None:
    assert torch.empty(1000, device="simulated").isnan().all().item()


def test_a_freed_block_is_reused_on_its_own_stream_and_not_on_another() -> None:
    x = torch.empty(5 * _MEGABYTE, dtype=torch.uint8, device="simulated")
    address = x.data_ptr()
    del x
    with torch.Stream("simulated"):
        other = torch.empty(5 * _MEGABYTE, dtype=torch.uint8, device="simulated")
    same = torch.empty(5 * _MEGABYTE, dtype=torch.uint8, device="simulated")
    assert other.data_ptr() != address
    assert same.data_ptr() == address


def test_memory_recorded_on_another_stream_waits_for_it() -> None:
    side = torch.Stream("simulated")
    target = torch.empty(4, pin_memory=True)
    x = torch.ones(4, device="simulated")
    torch.accelerator.synchronize()
    with side:
        target.copy_(x, non_blocking=True)
    x.record_stream(side)
    address = x.data_ptr()
    del x
    y = torch.full((4,), 7.0, device="simulated")
    assert y.data_ptr() != address
    side.synchronize()
    assert target.tolist() == [1, 1, 1, 1]


def test_memory_not_recorded_on_another_stream_is_overwritten() -> None:
    """What record_stream is for: without it this device shows the bug every time."""
    side = torch.Stream("simulated")
    target = torch.empty(4, pin_memory=True)
    x = torch.ones(4, device="simulated")
    torch.accelerator.synchronize()
    with side:
        target.copy_(x, non_blocking=True)
    del x
    y = torch.full((4,), 7.0, device="simulated")
    assert y.tolist() == [7, 7, 7, 7]
    side.synchronize()
    assert target.tolist() == [7, 7, 7, 7]


def test_resizing_keeps_the_contents_and_grows_the_storage() -> None:
    x = torch.arange(4.0, device="simulated")
    x.resize_(2, 4)
    assert x.flatten()[:4].tolist() == [0, 1, 2, 3]
    assert x.untyped_storage().nbytes() == 32
    x.untyped_storage().resize_(0)
    assert x.untyped_storage().nbytes() == 0


def test_an_out_argument_is_resized() -> None:
    x = torch.tensor([3.0, 1.0, 2.0], device="simulated")
    values = torch.empty(0, device="simulated")
    places = torch.empty(0, dtype=torch.int64, device="simulated")
    torch.sort(x, out=(values, places))
    assert values.tolist() == [1, 2, 3]
    assert places.tolist() == [1, 2, 0]


def test_set_shares_a_storage() -> None:
    x = torch.zeros(6, device="simulated")
    y = torch.empty(0, device="simulated").set_(x.untyped_storage(), 2, (2, 2), (2, 1))
    y.fill_(1)
    assert x.tolist() == [0, 0, 1, 1, 1, 1]
