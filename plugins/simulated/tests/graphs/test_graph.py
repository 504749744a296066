"""Graphs: recorded without a visible effect, replayed on fixed memory, no illegal calls."""

from __future__ import annotations

import gc
from collections.abc import Callable
from pathlib import Path

import pytest
import torch


def _stream() -> torch.Stream:
    return torch.Stream("simulated")


def test_recording_has_no_effect_and_replays_have() -> None:
    x = torch.zeros(4, device="simulated")
    graph = torch.accelerator.Graph()
    with _stream(), graph:
        x += 1
        y = x * 2
    assert x.tolist() == [0, 0, 0, 0]
    for count in (1, 2, 3):
        graph.replay()
        assert x.tolist() == [count] * 4
        assert y.tolist() == [2 * count] * 4


def test_a_replay_reads_the_current_inputs() -> None:
    x = torch.zeros(2, 3, device="simulated")
    weight = torch.randn(3, 3, device="simulated")
    graph = torch.accelerator.Graph()
    with _stream(), graph:
        y = (x @ weight).relu().sum(-1)
    for _ in range(2):
        fresh = torch.randn(2, 3)
        x.copy_(fresh)
        graph.replay()
        expected = (fresh @ weight.cpu()).relu().sum(-1)
        torch.testing.assert_close(y.cpu(), expected)


def test_views_and_in_place_writes_are_recorded() -> None:
    x = torch.arange(6.0, device="simulated").reshape(2, 3)
    graph = torch.accelerator.Graph()
    with _stream(), graph:
        x.t()[1].zero_()
        x[0].add_(x[1])
    graph.replay()
    assert x.tolist() == [[3, 0, 7], [3, 0, 5]]


def test_intermediate_indices_are_valid_while_recording() -> None:
    table = torch.arange(10.0, device="simulated")
    x = torch.tensor([1, 2], device="simulated")
    graph = torch.accelerator.Graph()
    with _stream(), graph:
        x += 1
        picked = table[x * 2]
    graph.replay()
    assert picked.tolist() == [4, 6]
    graph.replay()
    assert picked.tolist() == [6, 8]


def test_a_training_step_is_recorded() -> None:
    torch.manual_seed(0)
    weights = [torch.randn(4, 1) for _ in range(2)]
    inputs = torch.randn(8, 4)
    host = weights[0].clone().requires_grad_()
    device = weights[0].to("simulated").requires_grad_()
    x = inputs.to("simulated")
    graph = torch.accelerator.Graph()
    with _stream(), graph:
        loss = (x @ device).square().mean()
        (gradient,) = torch.autograd.grad(loss, device)
        with torch.no_grad():
            device -= 0.1 * gradient
    for _ in range(3):
        graph.replay()
        expected = (inputs @ host).square().mean()
        (step,) = torch.autograd.grad(expected, host)
        with torch.no_grad():
            host -= 0.1 * step
        torch.testing.assert_close(loss.detach().cpu(), expected.detach())
    torch.testing.assert_close(device.detach().cpu(), host.detach())


def test_random_numbers_differ_between_replays_and_recording_draws_none() -> None:
    torch.manual_seed(0)
    expected = [torch.rand(4, device="simulated").tolist() for _ in range(2)]
    torch.manual_seed(0)
    graph = torch.accelerator.Graph()
    with _stream(), graph:
        x = torch.rand(4, device="simulated")
    seen = []
    for _ in range(2):
        graph.replay()
        seen.append(x.tolist())
    assert seen == expected


_ILLEGAL: dict[str, Callable[[torch.Tensor], object]] = {
    "item": lambda x: x.sum().item(),
    "cpu": lambda x: x.cpu(),
    "nonzero": lambda x: x.nonzero(),
    "equal": lambda x: torch.equal(x, x),
    "stream synchronize": lambda x: torch.accelerator.current_stream().synchronize(),
    "device synchronize": lambda x: torch.accelerator.synchronize(),
    "stream query": lambda x: torch.accelerator.current_stream().query(),
    "event synchronize": lambda x: torch.accelerator.current_stream().record_event().synchronize(),
    "upload from pageable memory": lambda x: torch.ones(3).to(x.device),
    "other device": lambda x: x.to("simulated:1"),
}


@pytest.mark.parametrize("name", _ILLEGAL)
def test_a_synchronizing_call_is_illegal_while_recording(name: str) -> None:
    x = torch.ones(3, device="simulated")
    graph = torch.accelerator.Graph()
    refused = pytest.raises(RuntimeError, match="illegal while a graph is being captured")
    with refused, _stream(), graph:
        _ILLEGAL[name](x)
    # The device recovers: the same call is legal again, and so is another recording.
    _ILLEGAL[name](x)
    with _stream(), graph:
        x += 1
    graph.replay()
    assert x.tolist() == [2, 2, 2]


def test_the_default_stream_cannot_be_recorded() -> None:
    graph = torch.accelerator.Graph()
    with pytest.raises(RuntimeError, match="default stream"):
        graph.capture_begin()


def test_pinned_memory_may_be_copied_while_recording() -> None:
    source = torch.ones(3, pin_memory=True)
    target = torch.zeros(3, pin_memory=True)
    x = torch.zeros(3, device="simulated")
    graph = torch.accelerator.Graph()
    with _stream(), graph:
        x.copy_(source, non_blocking=True)
        y = x + 1
        target.copy_(y, non_blocking=True)
    assert target.tolist() == [0, 0, 0]
    source.fill_(5)
    graph.replay()
    torch.accelerator.synchronize()
    assert target.tolist() == [6, 6, 6]


def test_a_stream_is_forked_into_a_recording_and_joined() -> None:
    main, side = _stream(), _stream()
    x = torch.zeros(3, device="simulated")
    graph = torch.accelerator.Graph()
    with main, graph:
        x += 1
        side.wait_stream(main)
        with side:
            y = x * 10
        main.wait_stream(side)
        z = y + x
    graph.replay()
    assert z.tolist() == [11, 11, 11]


def test_a_forked_stream_that_never_joins_is_an_error() -> None:
    main, side = _stream(), _stream()
    x = torch.zeros(3, device="simulated")
    graph = torch.accelerator.Graph()
    refused = pytest.raises(RuntimeError, match="never joined")
    with refused, main, graph:
        side.wait_stream(main)
        with side:
            x += 1
    assert x.tolist() == [0, 0, 0]


def test_waiting_for_work_outside_of_the_recording_is_illegal() -> None:
    side = _stream()
    torch.ones(3, device="simulated")
    event = side.record_event()
    graph = torch.accelerator.Graph()
    refused = pytest.raises(RuntimeError, match="recorded outside of the capture is illegal")
    with refused, _stream() as main, graph:
        main.wait_event(event)


def test_memory_of_a_graph_is_not_given_to_others() -> None:
    x = torch.ones(1000, device="simulated")
    graph = torch.accelerator.Graph()
    stream = _stream()
    with stream, graph:
        y = x * 2
        z = y + 1
    address = y.data_ptr()
    del y
    gc.collect()
    with stream:
        others = [torch.zeros(1000, device="simulated") for _ in range(8)]
    stream.synchronize()
    assert all(other.data_ptr() != address for other in others)
    graph.replay()
    assert z[0].item() == 3
    assert all(other.sum().item() == 0 for other in others)


def test_two_graphs_share_a_pool() -> None:
    x = torch.ones(3, device="simulated")
    first = torch.accelerator.Graph()
    with _stream(), first:
        y = x + 1
    second = torch.accelerator.Graph(pool=first.pool())
    with _stream(), second:
        z = y * 10
    assert second.pool() == first.pool()
    first.replay()
    second.replay()
    assert z.tolist() == [20, 20, 20]


def test_a_graph_is_reset_and_recorded_again() -> None:
    x = torch.zeros(1, device="simulated")
    graph = torch.accelerator.Graph()
    with _stream(), graph:
        x += 1
    with pytest.raises(RuntimeError, match="captured already"), _stream(), graph:
        x += 5
    graph.reset()
    with pytest.raises(RuntimeError, match="expected a finished capture"):
        graph.replay()
    with _stream(), graph:
        x += 10
    graph.replay()
    assert x.item() == 10


def test_keep_graph_waits_for_instantiate_or_replay() -> None:
    x = torch.zeros(1, device="simulated")
    graph = torch.accelerator.Graph(keep_graph=True)
    with _stream(), graph:
        x += 1
    graph.instantiate()
    graph.replay()
    assert x.item() == 1


def test_a_dump_lists_the_recorded_operators(tmp_path: Path) -> None:
    x = torch.zeros(1, device="simulated")
    graph = torch.accelerator.Graph()
    with _stream(), graph:
        x.fill_(2)
        x.sin_()
    with pytest.raises(RuntimeError, match="enable_debug_mode"):
        graph.debug_dump(str(tmp_path / "graph"))
    graph.enable_debug_mode()
    graph.debug_dump(str(tmp_path / "graph"))
    assert (tmp_path / "graph").read_text().split() == ["fill", "aten::sin.out"]


def test_a_capturing_stream_says_so() -> None:
    stream = _stream()
    graph = torch.accelerator.Graph()
    assert not stream.is_capturing()
    with stream, graph:
        torch.zeros(1, device="simulated")
        assert stream.is_capturing()
    assert not stream.is_capturing()
