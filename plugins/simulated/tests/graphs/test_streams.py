"""Streams and events: order within a stream, none between two without an event."""

from __future__ import annotations

import threading

import pytest
import torch

from torchyard_simulated import runtime


def test_the_current_stream_follows_the_context() -> None:
    default = torch.accelerator.current_stream()
    stream = torch.Stream("simulated")
    with stream:
        assert torch.accelerator.current_stream() == stream
    assert torch.accelerator.current_stream() == default
    assert stream != default


def test_each_thread_has_its_own_current_stream() -> None:
    default = torch.accelerator.current_stream()
    seen = []
    with torch.Stream("simulated"):
        thread = threading.Thread(target=lambda: seen.append(torch.accelerator.current_stream()))
        thread.start()
        thread.join()
    assert seen == [default]


def test_a_missing_wait_reads_what_is_not_there_yet() -> None:
    side = torch.Stream("simulated")
    x = torch.zeros(4, device="simulated")
    torch.accelerator.synchronize()
    with side:
        y = x + 1
        x.fill_(5)
    assert y.isnan().all().item(), "computed on the side stream, read on this one"
    assert x.tolist() == [0, 0, 0, 0]
    side.synchronize()
    assert y.tolist() == [1, 1, 1, 1]
    assert x.tolist() == [5, 5, 5, 5]


def test_an_event_orders_two_streams() -> None:
    side = torch.Stream("simulated")
    event = torch.Event("simulated")
    x = torch.zeros(4, device="simulated")
    torch.accelerator.synchronize()
    with side:
        x.fill_(5)
        event.record()
    torch.accelerator.current_stream().wait_event(event)
    assert (x + 0).tolist() == [5, 5, 5, 5]


def test_a_stream_waits_for_a_whole_stream() -> None:
    side = torch.Stream("simulated")
    x = torch.zeros(4, device="simulated")
    torch.accelerator.synchronize()
    with side:
        x.fill_(5)
    torch.accelerator.current_stream().wait_stream(side)
    assert x.tolist() == [5, 5, 5, 5]


def test_waits_follow_a_chain_of_streams() -> None:
    first, second = torch.Stream("simulated"), torch.Stream("simulated")
    x = torch.zeros(1, device="simulated")
    torch.accelerator.synchronize()
    with first:
        x.fill_(1)
        one = first.record_event()
    with second:
        second.wait_event(one)
        x.mul_(10)
        two = second.record_event()
    torch.accelerator.current_stream().wait_event(two)
    assert x.item() == 10


def test_an_event_does_not_wait_for_what_comes_after_it() -> None:
    side = torch.Stream("simulated")
    x = torch.zeros(1, device="simulated")
    torch.accelerator.synchronize()
    with side:
        x.fill_(1)
        event = side.record_event()
        x.fill_(2)
    event.synchronize()
    assert x.item() == 1
    side.synchronize()
    assert x.item() == 2


def test_polling_a_stream_makes_progress() -> None:
    stream = torch.Stream("simulated")
    x = torch.zeros(1, device="simulated")
    torch.accelerator.synchronize()
    with stream:
        x.fill_(1)
        event = stream.record_event()
    assert not stream.query()
    polls = 0
    while not stream.query():
        polls += 1
        assert polls < 10
    assert event.query()
    assert x.item() == 1


def test_an_event_that_was_never_recorded_is_done() -> None:
    event = torch.Event("simulated")
    assert event.query()
    event.synchronize()


def test_events_time_the_work_between_them() -> None:
    start = torch.Event("simulated", enable_timing=True)
    end = torch.Event("simulated", enable_timing=True)
    x = torch.randn(300, 300, device="simulated")
    start.record()
    for _ in range(3):
        x = x @ x / 300
    end.record()
    end.synchronize()
    elapsed = start.elapsed_time(end)
    assert 0 < elapsed < 60_000


def test_timing_needs_events_made_for_it() -> None:
    start, end = torch.Event("simulated"), torch.Event("simulated")
    start.record()
    end.record()
    torch.accelerator.synchronize()
    with pytest.raises(ValueError, match="enable_timing"):
        start.elapsed_time(end)


def test_pending_work_is_counted_and_gone_after_synchronize() -> None:
    torch.accelerator.synchronize()
    x = torch.empty(4, device="simulated")
    x.fill_(1)
    x.fill_(2)
    assert runtime.pending_work() == 2
    assert runtime.pending_work("simulated:1") == 0
    torch.accelerator.synchronize()
    assert runtime.pending_work() == 0


def test_synchronizing_one_device_leaves_the_other_alone() -> None:
    x = torch.empty(4, device="simulated:0")
    y = torch.empty(4, device="simulated:1")
    torch.accelerator.synchronize(0)
    torch.accelerator.synchronize(1)
    x.fill_(1)
    y.fill_(1)
    torch.accelerator.synchronize(0)
    assert runtime.pending_work(0) == 0
    assert runtime.pending_work(1) == 1
