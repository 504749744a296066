"""Steps with compiled backward passes: ``python -m benchmarks.optimize.backward [MODEL ...]``.

Each row is of one run: ``compiled_backward`` compares the gradients of the step with and without,
times both, and keeps the compiled one where it is the faster. The forward pass is not compiled.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from collections.abc import Callable, Mapping
from typing import Any, Final

import torch
from rich.progress import track
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from torchyard_compile import compiled_backward

_Case = tuple[nn.Module, Callable[[], Any]]


class _Pointwise(nn.Module):
    """Thirty elementwise operations on a megabyte each, around two scales."""

    def __init__(self) -> None:
        super().__init__()
        self.scale, self.shift = (nn.Parameter(torch.rand(512, 512)) for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        for _ in range(10):
            x = torch.tanh(x * self.scale) + self.shift
        return x


class _Checkpointed(nn.Module):
    def __init__(self, blocks: nn.Sequential) -> None:
        super().__init__()
        self.blocks = blocks

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False)
        return x


def _deep() -> nn.Sequential:
    return nn.Sequential(
        *(nn.Sequential(nn.Linear(64, 64), nn.Tanh(), nn.LayerNorm(64)) for _ in range(40))
    )


def _step(model: nn.Module, x: Tensor) -> _Case:
    def step() -> None:
        model(x).square().mean().backward()

    return model, step


def _hooked() -> _Case:
    model, step = _step(_deep(), torch.randn(16, 64))
    for parameter in model.parameters():
        parameter.register_hook(lambda gradient: gradient.clamp(-1, 1) * 0.5)  # type: ignore[no-untyped-call]
    return model, step


def _layers() -> nn.Sequential:
    return nn.Sequential(
        *(nn.TransformerEncoderLayer(256, 4, 1024, dropout=0.0, batch_first=True) for _ in range(4))
    )


def _llama() -> _Case:
    from transformers import LlamaConfig, LlamaForCausalLM

    settings: Any = LlamaConfig
    build: Any = LlamaForCausalLM
    model = build(
        settings(
            vocab_size=1000,
            hidden_size=256,
            intermediate_size=688,
            num_hidden_layers=24,
            num_attention_heads=4,
        )
    )
    tokens = torch.arange(64)[None]

    def step() -> None:
        model(input_ids=tokens, labels=tokens, use_cache=False).loss.backward()

    return model, step


MODELS: Final[Mapping[str, Callable[[], _Case]]] = {
    "elementwise": lambda: _step(_Pointwise(), torch.randn(512, 512)),
    "deep and narrow": lambda: _step(_deep(), torch.randn(16, 64)),
    "the same, a hook for each parameter": _hooked,
    "transformer layers, checkpointed": lambda: _step(
        _Checkpointed(_layers()), torch.randn(4, 64, 256)
    ),
    "llama, 24 layers": _llama,
}


def main() -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(prog="benchmarks.optimize.backward", description=__doc__)
    parser.add_argument("models", nargs="*", default=list(MODELS), help="names; all of them")
    parser.add_argument("--rounds", type=int, default=15)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    rows = []
    for name in track(options.models, "models", transient=True):
        torch.manual_seed(0)
        model, step = MODELS[name]()
        report = compiled_backward(model.train(), step, rounds=options.rounds).report
        outcome = "used" if report.active else f"refused: {report.reason}"
        rows.append(
            f"| {name} | {1e3 * report.eager_seconds:.1f} | {1e3 * report.compiled_seconds:.1f} | "
            f"{report.first_seconds:.1f} | {outcome} |"
        )
    print("| model | step, ms | backward compiled | first, s | outcome |")
    print("| --- " * 5 + "|")
    print(*rows, sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
