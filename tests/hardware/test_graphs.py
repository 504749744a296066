"""A captured graph replays what the function computes, to the bit, and names what it cannot."""

from __future__ import annotations

from contextlib import ExitStack

import pytest
import torch

import torchyard
import torchyard_kernels as kernels
from torchyard import registry
from torchyard_attention import flex_attention
from torchyard_kernels.graphs.contract import DEFINITIONS, GRAPH_CAPTURE


def test_a_replay_has_the_bits_of_the_function(device: str) -> None:
    generator = torch.Generator().manual_seed(0)
    weight = torch.randn((64, 64), generator=generator).to(device)

    def step(x: torch.Tensor) -> torch.Tensor:
        for _ in range(8):
            x = torch.nn.functional.gelu(x @ weight) + x
        return x

    first, second = (torch.randn((4, 64), generator=generator).to(device) for _ in range(2))
    graph = kernels.capture(step, first)
    for x in (first, second):
        assert torch.equal(graph(x), step(x))


def test_attention_is_captured(device: str) -> None:
    generator = torch.Generator().manual_seed(1)

    def drawn(length: int) -> torch.Tensor:
        return torch.randn((2, 4, length, 64), generator=generator).to(device, torch.float16)

    key, value = drawn(300), drawn(300)

    def decode(query: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = flex_attention(query, key, value)
        return out

    query, other = drawn(1), drawn(1)
    with ExitStack() as stack:
        try:
            graph = kernels.capture(decode, query)
        except kernels.UncapturableError:
            if not _has_faults(device):
                raise
            # As on XPU with torch 2.13, whose graphs do not hold what the first choice calls.
            stack.enter_context(torchyard.use(attention="attention.tiled"))
            graph = kernels.capture(decode, query)
        assert torch.equal(graph(other), decode(other))


def _has_faults(device: str) -> bool:
    """Return whether this machine's graphs are known not to hold an operator."""
    cases = DEFINITIONS[GRAPH_CAPTURE].cases(device)
    return any(registry().decide(GRAPH_CAPTURE, case).chosen is None for case in cases)


def test_what_the_host_reads_is_not_captured(device: str) -> None:
    with pytest.raises(kernels.UncapturableError):
        kernels.capture(lambda x: x * float(x.sum()), torch.ones(4, device=device))
