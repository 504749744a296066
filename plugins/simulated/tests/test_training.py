"""Training: the same losses and parameters as on the CPU."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn


class _Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(11, 16)
        self.convolution = nn.Conv1d(16, 16, 3, padding=1)
        self.norm = nn.LayerNorm(16)
        self.attention = nn.MultiheadAttention(16, 4, batch_first=True)
        self.recurrent = nn.GRU(16, 16, batch_first=True)
        self.head = nn.Linear(16, 11)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.embedding(tokens)
        x = x + self.convolution(x.mT).mT
        x = self.norm(x)
        x = x + self.attention(x, x, x, need_weights=False)[0]
        x, _ = self.recurrent(x)
        return self.head(x)


@pytest.mark.parametrize(
    "optimizer",
    [
        lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9),
        # The keys' bias has gradient zero up to rounding, which a small eps would amplify.
        lambda p: torch.optim.AdamW(p, lr=0.01, eps=1e-2),
        lambda p: torch.optim.AdamW(p, lr=0.01, eps=1e-2, foreach=True),
    ],
    ids=["sgd", "adamw", "adamw-foreach"],
)
def test_training_follows_the_cpu(optimizer: object) -> None:
    assert callable(optimizer)
    torch.manual_seed(0)
    host = _Model()
    device = copy.deepcopy(host).to("simulated")
    tokens = torch.randint(11, (4, 9))
    losses: dict[str, list[float]] = {"cpu": [], "simulated": []}
    for model, where in ((host, "cpu"), (device, "simulated")):
        steps = optimizer(model.parameters())
        for _ in range(4):
            steps.zero_grad()
            logits = model(tokens.to(where)[:, :-1])
            targets = tokens.to(where)[:, 1:].flatten()
            loss = nn.functional.cross_entropy(logits.flatten(0, 1), targets)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            steps.step()
            losses[where].append(loss.item())
    assert losses["simulated"] == pytest.approx(losses["cpu"], rel=1e-5)
    assert losses["simulated"][-1] < losses["simulated"][0]
    for expected, got in zip(host.parameters(), device.parameters(), strict=True):
        assert got.is_simulated
        torch.testing.assert_close(got.cpu(), expected, rtol=1e-4, atol=1e-6)


def test_autocast_computes_matmuls_in_the_lower_dtype() -> None:
    x = torch.ones(4, 4, device="simulated")
    with torch.autocast("simulated", dtype=torch.bfloat16):
        assert (x @ x).dtype == torch.bfloat16
        assert (x @ x).float().sum().dtype == torch.float32
    assert (x @ x).dtype == torch.float32


def test_checkpointing_recomputes_with_the_same_dropout() -> None:
    torch.manual_seed(0)
    layers = nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.5), nn.Linear(8, 8)).to("simulated")
    x = torch.randn(4, 8, device="simulated")
    gradients = []
    for checkpoint in (False, True):
        torch.manual_seed(1)
        layers.zero_grad()
        if checkpoint:
            out = torch.utils.checkpoint.checkpoint(layers, x, use_reentrant=False)
        else:
            out = layers(x)
        out.square().sum().backward()
        gradients.append([p.grad.cpu() for p in layers.parameters()])
    for direct, recomputed in zip(*gradients, strict=True):
        assert torch.equal(direct, recomputed)
