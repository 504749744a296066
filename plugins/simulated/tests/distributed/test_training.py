"""DDP and FSDP2 on two ranks: the gradients and parameters of one process on the CPU."""

from __future__ import annotations

from collections.abc import Callable

import pytest

RunRanks = Callable[..., list[str]]

_MODEL = """
from torch import nn

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(16)
        self.attention = nn.MultiheadAttention(16, 4, batch_first=True)
        self.mlp = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 16))

    def forward(self, x):
        h = self.norm(x)
        x = x + self.attention(h, h, h, need_weights=False)[0]
        return x + self.mlp(self.norm(x))

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(11, 16)
        self.blocks = nn.Sequential(Block())
        self.head = nn.Linear(16, 11)

    def forward(self, tokens):
        return self.head(self.blocks(self.embedding(tokens)))

def train(model, module, tokens):
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1, momentum=0.9)
    losses = []
    for _ in range(3):
        optimizer.zero_grad()
        logits = model(tokens[:, :-1])
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return torch.stack(losses)

torch.manual_seed(0)
host = Model()
device = copy.deepcopy(host).to("simulated")
tokens = torch.randint(11, (4, 9))
mine = tokens[2 * rank : 2 * rank + 2].to("simulated")
"""
_COMPARE = """
dist.all_reduce(losses, dist.ReduceOp.AVG)
expected = train(host, host, tokens)
torch.testing.assert_close(losses.cpu(), expected, rtol=1e-5, atol=0)
assert expected[-1] < expected[0]
for (name, one), other in zip(host.named_parameters(), device.parameters(), strict=True):
    assert other.device.type == "simulated", other.device
    for a, b in ((one, other.detach()), (one.grad, other.grad)):
        b = b.full_tensor() if hasattr(b, "full_tensor") else b
        torch.testing.assert_close(b.cpu(), a.detach(), rtol=1e-4, atol=1e-6, msg=name)
print("equal", torch.simulated.compiled_launches() > 0)
"""
_WAYS = {
    "ddp": "losses = train(nn.parallel.DistributedDataParallel(device), device, mine)",
    "ddp-compiled": """
losses = train(torch.compile(nn.parallel.DistributedDataParallel(device)), device, mine)
""",
    "fsdp": """
from torch.distributed.fsdp import fully_shard
for block in device.blocks:
    fully_shard(block)
fully_shard(device)
assert device.head.weight.to_local().shape[0] in (5, 6)
losses = train(device, device, mine)
""",
}


@pytest.mark.parametrize(
    "way", [pytest.param(way, marks=[pytest.mark.sweep] if way != "ddp" else []) for way in _WAYS]
)
def test_a_transformer_trains_on_two_ranks_as_on_the_cpu(run_ranks: RunRanks, way: str) -> None:
    found = run_ranks(_MODEL + _WAYS[way] + _COMPARE)
    assert found == [f"equal {'compiled' in way}"] * 2


@pytest.mark.sweep
def test_a_distributed_tensor_is_spread_and_gathered(run_ranks: RunRanks) -> None:
    program = """
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate, Shard, distribute_tensor
mesh = init_device_mesh("simulated", (2,))
torch.manual_seed(0)
a, b = torch.randn(4, 6), torch.randn(6, 3)
product = distribute_tensor(a.to("simulated"), mesh, [Shard(1)]) @ distribute_tensor(
    b.to("simulated"), mesh, [Shard(0)]
)
whole = product.redistribute(mesh, [Replicate()]).to_local()
torch.testing.assert_close(whole.cpu(), a @ b)
print(product.placements[0].is_partial())
"""
    assert run_ranks(program) == ["True", "True"]
