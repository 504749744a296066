"""The transformer that the checks train, and its results on the CPU."""

from __future__ import annotations

import copy

import torch
from torch import nn

from torchyard_conformance._outcome import violated

__all__ = ["Block", "compare", "gradients", "pair"]

# Of float32, over sums of some hundred products.
_RTOL, _ATOL = 1e-4, 1e-5


class Block(nn.Module):
    """A transformer block: [B, T, 16] to [B, T, 16]."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(16)
        self.attention = nn.MultiheadAttention(16, 4, batch_first=True)
        self.mlp = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 16))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return attention and a feed-forward layer, each added to what it reads."""
        h = self.norm(x)
        x = x + self.attention(h, h, h, need_weights=False)[0]
        out: torch.Tensor = x + self.mlp(self.norm(x))
        return out


def pair(device: str) -> tuple[Block, Block, torch.Tensor]:
    """Return equal blocks on the CPU and a device, and an input [4, 5, 16] on the CPU."""
    torch.manual_seed(0)
    host = Block()
    return host, copy.deepcopy(host).to(device), torch.randn(4, 5, 16)


def gradients(module: nn.Module) -> dict[str, torch.Tensor]:
    """Return the parameters' gradients on the CPU.

    Raises:
        Violated: a parameter has none.
    """
    found = {}
    for name, parameter in module.named_parameters():
        if parameter.grad is None:
            violated(f"expected a gradient of {name}, got None")
        found[name] = parameter.grad.cpu()
    return found


def compare(
    what: str,
    got: torch.Tensor,
    expected: torch.Tensor,
    *,
    rtol: float = _RTOL,
    atol: float = _ATOL,
) -> None:
    """Hold a result against the CPU's.

    Raises:
        Violated: they differ.
    """
    try:
        torch.testing.assert_close(got.detach().cpu(), expected.detach(), rtol=rtol, atol=atol)
    except AssertionError as error:
        violated(f"{what}: expected the CPU's result; {' '.join(str(error).split())}")
