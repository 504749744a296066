"""torch.accelerator.Graph on a device."""

from __future__ import annotations

import torch

from torchyard_conformance._device._model import compare
from torchyard_conformance._device._operators import CALLS, LAYOUTS, bases
from torchyard_conformance._outcome import violated

__all__ = ["check_graphs"]


def check_graphs(device: str) -> None:
    """Capture operators together and one by one, and replay them on other inputs.

    Raises:
        Violated: the device has no graphs, the capture changed memory, or a replay gives another
            result than the operators.
    """
    x, total = torch.ones(4, device=device), torch.zeros(4, device=device)
    (total + x.sin() * 2).sum().item()
    try:
        graph = torch.accelerator.Graph()
        with torch.Stream(device), graph:
            y = x.sin() * 2
            total.add_(y)
    except (RuntimeError, AttributeError) as error:
        violated(f"expected a graph to be captured, got {error}")
    if total.cpu().any():
        violated(f"expected a capture to change no memory, got {total.tolist()}")
    expected = torch.zeros(4)
    for value in (1.0, 2.0):
        x.fill_(value)
        torch.accelerator.synchronize()
        graph.replay()
        torch.accelerator.synchronize()
        expected += torch.full((4,), value).sin() * 2
        compare(f"a replay on {value}", total, expected)
    for name in CALLS:
        _check_replay(name, device)


def _check_replay(name: str, device: str) -> None:
    """Replay one operator on other inputs than it was captured with, unless it is refused."""
    hosts = bases(torch.float32)
    there = [host.to(device) for host in hosts]
    call, layout = CALLS[name], LAYOUTS["with gaps"]
    call(*layout(*there))
    graph = torch.accelerator.Graph()
    try:
        with torch.Stream(device), graph:
            got = call(*layout(*there))
    except RuntimeError:
        # Said so, where a replay could not do it.
        return
    for tensor, host in zip(there, hosts, strict=True):
        tensor.copy_(host.flip(0))
    torch.accelerator.synchronize()
    graph.replay()
    torch.accelerator.synchronize()
    expected = call(*layout(*(host.flip(0) for host in hosts)))
    compare(f"a replay of {name} on other inputs", got, expected)
