"""torch.compile's default backend: generated kernels are work of the device's streams."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn


def _launches() -> int:
    return int(torch.simulated.compiled_launches())  # type: ignore[attr-defined]


class _Block(nn.Module):
    """A transformer block over tokens [B, T], with logits [B, T, 11]."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(11, 16)
        self.norm = nn.LayerNorm(16)
        self.attention = nn.MultiheadAttention(16, 4, batch_first=True)
        self.mlp = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 16))
        self.head = nn.Linear(16, 11)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.embedding(tokens)
        h = self.norm(x)
        x = x + self.attention(h, h, h, need_weights=False)[0]
        return self.head(x + self.mlp(self.norm(x)))


@pytest.mark.sweep
def test_a_compiled_transformer_trains_as_the_cpu_does() -> None:
    torch.manual_seed(0)
    host = _Block()
    device = copy.deepcopy(host).to("simulated")
    tokens = torch.randint(11, (4, 9))
    compiled = torch.compile(device, fullgraph=True)
    losses: dict[str, list[float]] = {"cpu": [], "simulated": []}
    before = _launches()
    for model, module, where in ((host, host, "cpu"), (compiled, device, "simulated")):
        optimizer = torch.optim.SGD(module.parameters(), lr=0.1, momentum=0.9)
        for _ in range(3):
            optimizer.zero_grad()
            logits = model(tokens.to(where)[:, :-1])
            loss = nn.functional.cross_entropy(
                logits.flatten(0, 1), tokens.to(where)[:, 1:].flatten()
            )
            loss.backward()
            optimizer.step()
            losses[where].append(loss.item())
    assert losses["simulated"] == pytest.approx(losses["cpu"], rel=1e-5)
    assert _launches() - before >= 3 * 4  # several generated kernels each way, in every step
    for expected, got in zip(host.parameters(), device.parameters(), strict=True):
        torch.testing.assert_close(got.cpu(), expected, rtol=1e-4, atol=1e-6)


@torch.compile(fullgraph=True)
def _twice_plus(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return x * 2 + y.sin()


def test_a_generated_kernel_waits_in_its_stream() -> None:
    x = torch.zeros(4, device="simulated")
    y = torch.zeros(4, device="simulated")
    _twice_plus(x, y)
    torch.accelerator.synchronize()
    with torch.Stream("simulated") as stream:
        x.fill_(3)
        out = _twice_plus(x, y)
        waiting = torch.simulated.pending_work()  # type: ignore[attr-defined]
    assert waiting >= 2  # the fill and the kernel
    assert out.isnan().all()  # read on the default stream, which waited for nothing: new memory
    stream.synchronize()
    assert out.tolist() == [6.0] * 4


def test_a_generated_kernel_runs_on_the_device_of_its_tensors() -> None:
    x = torch.arange(4.0, device="simulated:1")
    out = _twice_plus(x, torch.zeros_like(x))
    assert torch.accelerator.current_device_index() == 0
    assert out.device == torch.device("simulated:1")
    assert out.tolist() == [0.0, 2.0, 4.0, 6.0]


def test_a_graph_records_generated_kernels() -> None:
    x = torch.zeros(4, device="simulated")
    y = torch.zeros(4, device="simulated")
    _twice_plus(x, y)
    graph = torch.accelerator.Graph()
    with torch.Stream("simulated"), graph:
        out = _twice_plus(x, y)
    x.fill_(5)
    graph.replay()
    assert out.tolist() == [10.0] * 4


def test_sizes_that_change_reach_the_kernel() -> None:
    scaled = torch.compile(lambda x: (x + x.shape[0]).cumsum(0), dynamic=True, fullgraph=True)
    before = _launches()
    for size in (3, 5, 8):
        x = torch.arange(float(size))
        torch.testing.assert_close(scaled(x.to("simulated")).cpu(), (x + size).cumsum(0))
    assert _launches() - before >= 3


def test_a_number_on_the_cpu_is_read_when_the_function_is_called() -> None:
    shift = torch.compile(lambda x, by: (x + by).exp(), fullgraph=True)
    by = torch.tensor(0.0)
    out = shift(torch.zeros(4, device="simulated"), by)
    by.fill_(7)
    assert out.tolist() == [1.0] * 4


def test_a_graph_may_compute_on_the_cpu_too() -> None:
    @torch.compile(fullgraph=True)
    def both(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return x * 2 + 1, (y * 2 + 1).to("simulated") - x

    x = torch.arange(4.0)
    doubled, difference = both(x.to("simulated"), x)
    assert doubled.tolist() == [1.0, 3.0, 5.0, 7.0]
    assert difference.tolist() == [1.0, 2.0, 3.0, 4.0]


def test_compiled_dropout_draws_from_the_devices_sequence() -> None:
    drop = torch.compile(lambda x: nn.functional.dropout(x, 0.5), fullgraph=True)
    x = torch.ones(256, device="simulated")
    drawn = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        drawn.append(drop(x).cpu())
    assert torch.equal(drawn[0], drawn[1])
    assert not torch.equal(drawn[0], drawn[2])
    assert set(drawn[0].tolist()) == {0.0, 2.0}


def test_an_index_out_of_bounds_is_an_error_when_the_stream_is_waited_for() -> None:
    taken = torch.compile(lambda x, i: x[i] * 2, fullgraph=True)
    x = torch.arange(4.0, device="simulated")
    assert taken(x, torch.tensor([1, 3], device="simulated")).tolist() == [2.0, 6.0]
    taken(x, torch.tensor([1, 4], device="simulated"))
    with pytest.raises(RuntimeError, match="index out of bounds"):
        torch.accelerator.synchronize()


@pytest.mark.parametrize(
    ("tensors", "written", "message"),
    [
        ([torch.zeros(3)], [0], "expected at least one of the simulated device"),
        (["simulated:0", "simulated:1"], [0, 0], "expected all on one device"),
        (["simulated:0"], [0, 1], "expected 1 numbers, one for each tensor, got 2"),
        (["simulated:0", torch.zeros(3)], [0, 0], "got one of 1 dimensions on cpu"),
        (["simulated:0", torch.zeros(())], [0, 1], "numbers on the CPU that are only read"),
    ],
)
def test_launching_refuses_what_it_cannot_run(
    tensors: list[str | torch.Tensor], written: list[int], message: str
) -> None:
    given = [torch.zeros(3, device=t) if isinstance(t, str) else t for t in tensors]
    with pytest.raises(RuntimeError, match=message):
        torch.ops.torchyard_simulated.launch_compiled("kernel", 1, given, written, [])


def test_an_ahead_of_time_wrapper_is_refused_and_not_run_on_the_cpu() -> None:
    def plus(x: torch.Tensor) -> torch.Tensor:
        return x + 1

    with pytest.raises(Exception, match="Device simulated not supported"):
        torch.compile(plus, options={"cpp_wrapper": True})(torch.zeros(3, device="simulated"))
