"""Collectives between real processes: values, streams and refusals."""

from __future__ import annotations

from collections.abc import Callable

import pytest

RunRanks = Callable[..., list[str]]

_VALUES = """
def here(values):
    return torch.tensor(values, device="simulated")

def numbers(result):
    return [each.tolist() for each in result] if isinstance(result, list) else result.tolist()

x = here([1.0, 2.0]) + 10 * rank
others = [torch.empty_like(x), torch.empty_like(x)]
print("default", dist.get_backend(), x.device.index == rank)
y = x.clone(); dist.all_reduce(y); print("all_reduce", numbers(y))
y = x.clone(); dist.all_reduce(y, dist.ReduceOp.AVG); print("average", numbers(y))
y = x.clone(); dist.broadcast(y, 1); print("broadcast", numbers(y))
y = x.clone(); dist.reduce(y, 1); print("reduce", numbers(y) if rank == 1 else "")
dist.all_gather(others, x); print("all_gather", numbers(others))
dist.gather(x, others if rank == 0 else None); print("gather", numbers(others))
y = torch.empty_like(x); dist.scatter(y, [x, x + 1] if rank == 0 else None)
print("scatter", numbers(y))
dist.reduce_scatter(y, [x, x + 1]); print("reduce_scatter", numbers(y))
y = torch.empty(4, device="simulated"); dist.all_gather_into_tensor(y, x)
print("all_gather_into_tensor", numbers(y))
z = torch.empty(1, device="simulated"); dist.reduce_scatter_tensor(z, x, dist.ReduceOp.AVG)
print("reduce_scatter_tensor", numbers(z))
dist.all_to_all(others, [x, x + 1]); print("all_to_all", numbers(others))
y = torch.empty_like(x); dist.all_to_all_single(y, x); print("all_to_all_single", numbers(y))
y = x.clone(); dist.send(y, 1) if rank == 0 else dist.recv(y, 0); print("send", numbers(y))
y = here([[1, 2], [3, 4]]).t() + rank; dist.all_reduce(y); print("strided", numbers(y))
found = [None, None]; dist.all_gather_object(found, {"rank": rank}); print("objects", found)
dist.barrier()
"""
_EXPECTED = """
default simulated True | default simulated True
all_reduce [12.0, 14.0] | all_reduce [12.0, 14.0]
average [6.0, 7.0] | average [6.0, 7.0]
broadcast [11.0, 12.0] | broadcast [11.0, 12.0]
reduce | reduce [12.0, 14.0]
all_gather [[1.0, 2.0], [11.0, 12.0]] | all_gather [[1.0, 2.0], [11.0, 12.0]]
gather [[1.0, 2.0], [11.0, 12.0]] | gather [[1.0, 2.0], [11.0, 12.0]]
scatter [1.0, 2.0] | scatter [2.0, 3.0]
reduce_scatter [12.0, 14.0] | reduce_scatter [14.0, 16.0]
all_gather_into_tensor [1.0, 2.0, 11.0, 12.0] | all_gather_into_tensor [1.0, 2.0, 11.0, 12.0]
reduce_scatter_tensor [6.0] | reduce_scatter_tensor [7.0]
all_to_all [[1.0, 2.0], [11.0, 12.0]] | all_to_all [[2.0, 3.0], [12.0, 13.0]]
all_to_all_single [1.0, 11.0] | all_to_all_single [2.0, 12.0]
send [1.0, 2.0] | send [1.0, 2.0]
strided [[3, 7], [5, 9]] | strided [[3, 7], [5, 9]]
objects [{'rank': 0}, {'rank': 1}] | objects [{'rank': 0}, {'rank': 1}]
"""


def test_every_collective_gives_its_values(run_ranks: RunRanks) -> None:
    first, second = (text.splitlines() for text in run_ranks(_VALUES))
    found = [f"{a.strip()} | {b.strip()}" for a, b in zip(first, second, strict=True)]
    assert found == _EXPECTED.strip().splitlines()


@pytest.mark.sweep
def test_results_arrive_in_the_stream_that_waits(run_ranks: RunRanks) -> None:
    """An operation reads after its stream's work; without a wait nothing arrives."""
    program = """
x = torch.zeros(2, device="simulated")
torch.accelerator.synchronize()
stream = torch.Stream(x.device)
with stream:
    x.fill_(rank + 1)
    work = dist.all_reduce(x, async_op=True)  # reads what the fill of its stream wrote
torch.accelerator.synchronize()
print(x.tolist() == [rank + 1.0] * 2)
with stream:
    work.wait()
print(x.tolist() == [rank + 1.0] * 2)  # the default stream did not wait
work.wait()
print(x.tolist())
y = torch.ones(2, device="simulated")
work = dist.all_reduce(y, async_op=True)
while not work.is_completed(): pass
print(y.tolist())
future = dist.all_reduce(y, async_op=True).get_future()
(z,) = future.wait()
print(z.tolist(), z.data_ptr() == y.data_ptr())
"""
    for text in run_ranks(program):
        assert text.splitlines() == ["True", "True", "[3.0, 3.0]", "[2.0, 2.0]", "[4.0, 4.0] True"]


@pytest.mark.sweep
def test_what_a_group_cannot_do_is_said(run_ranks: RunRanks) -> None:
    program = """
def said(call):
    try: call()
    except RuntimeError as error: return str(error).splitlines()[0]

x = torch.zeros(2, device="simulated")
print(said(lambda: dist.all_reduce(torch.zeros(2))))
def captured():
    with torch.Stream(x.device), torch.accelerator.Graph():
        dist.all_reduce(x)
print(said(captured))
"""
    for text in run_ranks(program):
        on_cpu, captured = text.splitlines()
        assert "No backend type associated with device type cpu" in on_cpu
        assert "is illegal while a graph is being captured" in captured


@pytest.mark.sweep
def test_a_group_may_hold_a_backend_for_each_device(run_ranks: RunRanks) -> None:
    program = """
for device in ("cpu", "simulated"):
    x = torch.ones(2, device=device)
    dist.all_reduce(x)
    print(x.device.type, x.tolist())
half = dist.new_group([rank])
x = torch.ones(2, device="simulated")
dist.all_reduce(x, group=half)
print(x.tolist())
"""
    for text in run_ranks(program, backend="cpu:gloo,simulated:simulated"):
        assert text.splitlines() == ["cpu [2.0, 2.0]", "simulated [2.0, 2.0]", "[1.0, 1.0]"]
