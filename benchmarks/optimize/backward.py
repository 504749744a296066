"""Steps with compiled backward passes: ``python -m benchmarks.optimize.backward [MODEL ...]``.

Each row is of one run: ``compiled_backward`` compares the gradients of the step with and without,
times both, and keeps the compiled one where it is the faster. The forward pass is not compiled.
"""

from __future__ import annotations

import argparse
import copy
import dataclasses
import os
import statistics
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Mapping
from typing import Any, Final

import torch
from rich.console import Console
from rich.progress import track
from torch import Tensor, nn
from torch.multiprocessing.spawn import spawn
from torch.utils.checkpoint import checkpoint

from torchyard_compile import BackwardReport, compiled_backward

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
    # The mean square of what a LayerNorm gives has no gradient but rounding.
    target = torch.randn_like(x)

    def step() -> None:
        nn.functional.mse_loss(model(x), target).backward()  # type: ignore[no-untyped-call]

    return model, step


def _hooked() -> _Case:
    model = nn.Sequential(*(nn.Sequential(nn.Linear(1024, 1024), nn.Tanh()) for _ in range(4)))
    for parameter in model.parameters():
        parameter.register_hook(lambda gradient: gradient.clamp(-1, 1) * 0.5 + gradient.tanh())  # type: ignore[no-untyped-call]
    return _step(model, torch.randn(16, 1024))


def _layer() -> nn.Sequential:
    return nn.Sequential(
        nn.TransformerEncoderLayer(256, 4, 1024, dropout=0.0, batch_first=True),
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
            num_hidden_layers=2,
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
    "hooks of elementwise operations": _hooked,
    "transformer layer": lambda: _step(_layer(), torch.randn(4, 64, 256)),
    "transformer layer, checkpointed": lambda: _step(
        _Checkpointed(_layer()), torch.randn(4, 64, 256)
    ),
    "llama, 2 layers": _llama,
}
_RANKS: Final[Mapping[str, bool]] = {
    "two ranks of DistributedDataParallel": False,
    "the same, forward pass compiled": True,
}


def _row(name: str, report: BackwardReport, seconds: float | None = None) -> str:
    outcome = "used" if report.active else f"refused: {report.reason}"
    eager = report.eager_seconds if seconds is None else seconds
    return (
        f"| {name} | {1e3 * eager:.1f} | {1e3 * report.compiled_seconds:.1f} | "
        f"{report.first_seconds:.1f} | {outcome} |"
    )


def _rank(rank: int, folder: str, name: str, rounds: int) -> None:
    """Print the row of two ranks: beside torch's reducer in C++, which is what is replaced."""
    warnings.simplefilter("ignore")
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    torch.set_num_threads(1)
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{folder}/ranks", rank=rank, world_size=2
    )
    torch.manual_seed(0)
    layers = nn.Sequential(*(nn.Sequential(nn.Linear(256, 256), nn.GELU()) for _ in range(8)))
    torch.manual_seed(rank + 1)
    x, target = torch.randn(2, 64, 256)

    def stepping(ranks: nn.Module) -> Callable[[], float]:
        forward = torch.compile(ranks) if _RANKS[name] else ranks

        def step() -> float:
            ranks.zero_grad()
            start = time.perf_counter()
            loss = nn.functional.mse_loss(forward(x), target)
            loss.backward()  # type: ignore[no-untyped-call]
            return time.perf_counter() - start

        return step

    stock = nn.parallel.DistributedDataParallel(copy.deepcopy(layers))
    stock_step = stepping(stock)
    stock_step()
    torch._dynamo.config.optimize_ddp = "python_reducer"
    model = nn.parallel.DistributedDataParallel(layers)
    step = stepping(model)
    backward = compiled_backward(model, step, rounds=rounds, on_refusal="warn")
    seconds: tuple[list[float], list[float]] = [], []
    for _ in range(rounds):
        seconds[0].append(stock_step())
        with backward:
            seconds[1].append(step())
    for parameter, other in zip(model.parameters(), stock.parameters(), strict=True):
        torch.testing.assert_close(parameter.grad, other.grad)
    if not rank:
        eager, compiled = (statistics.median(times) for times in seconds)
        report = dataclasses.replace(backward.report, compiled_seconds=compiled)
        print(_row(name, report, eager), flush=True)
    torch.distributed.destroy_process_group()


def main() -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(prog="benchmarks.optimize.backward", description=__doc__)
    parser.add_argument("models", nargs="*", default=[*MODELS, *_RANKS], help="names; all of them")
    parser.add_argument("--rounds", type=int, default=15)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    print("| model | step, ms | backward compiled | first, s | outcome |")
    print("| --- " * 5 + "|", flush=True)
    for name in track(options.models, "models", console=Console(stderr=True), transient=True):
        if name in _RANKS:
            with tempfile.TemporaryDirectory() as folder:
                spawn(_rank, (folder, name, options.rounds), nprocs=2)  # type: ignore[no-untyped-call]
            continue
        torch.compiler.reset()
        torch.manual_seed(0)
        model, step = MODELS[name]()
        report = compiled_backward(model.train(), step, rounds=options.rounds).report
        print(_row(name, report), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
