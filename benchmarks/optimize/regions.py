"""Cold and warm of compiled regions: ``python -m benchmarks.optimize.regions [MODEL ...]``.

Each cold start is a process of its own with an empty folder for torch's caches: the seconds of the
first call, compilation included. Warm calls are of one process, in turns: the model as it is,
compiled whole, and compiled by regions.
"""

from __future__ import annotations

import argparse
import copy
import json
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

import torch
from rich.progress import track
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.optimize._turns import milliseconds
from torchyard import child_environ
from torchyard_compile import compile_regions

_Given = Mapping[str, Any]


def _llama() -> tuple[nn.Module, _Given]:
    from transformers import LlamaConfig, LlamaForCausalLM

    settings: Any = LlamaConfig
    build: Any = LlamaForCausalLM
    config = settings(
        vocab_size=1000,
        hidden_size=512,
        intermediate_size=1376,
        num_hidden_layers=24,
        num_attention_heads=8,
        num_key_value_heads=4,
    )
    return build(config), {"input_ids": torch.arange(128)[None], "use_cache": False}


def _encoder() -> tuple[nn.Module, _Given]:
    """Return a model of MiniLM-L6's shape."""
    from transformers import BertConfig, BertModel

    settings: Any = BertConfig
    build: Any = BertModel
    config = settings(
        hidden_size=384, num_hidden_layers=6, num_attention_heads=12, intermediate_size=1536
    )
    return build(config), {"input_ids": torch.arange(128)[None]}


def _vision() -> tuple[nn.Module, _Given]:
    from transformers import ViTConfig, ViTModel

    settings: Any = ViTConfig
    build: Any = ViTModel
    config = settings(
        hidden_size=384, num_hidden_layers=12, num_attention_heads=6, intermediate_size=1536
    )
    return build(config), {"pixel_values": torch.randn(1, 3, 224, 224)}


class _Block(nn.Module):
    """A block whose norms are shifted and scaled by a condition, as a diffusion transformer's."""

    def __init__(self, size: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.first, self.second = (nn.LayerNorm(size, elementwise_affine=False) for _ in range(2))
        self.qkv, self.out = nn.Linear(size, 3 * size), nn.Linear(size, size)
        self.up, self.down = nn.Linear(size, 4 * size), nn.Linear(4 * size, size)
        self.condition = nn.Linear(size, 6 * size)

    def forward(self, x: Tensor, c: Tensor) -> Tensor:
        shift, scale, gate, shift_2, scale_2, gate_2 = (
            self.condition(functional.silu(c)).unsqueeze(1).chunk(6, dim=-1)
        )
        y = self.first(x) * (1 + scale) + shift
        q, k, v = self.qkv(y).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        y = functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
        x = x + gate * self.out(y)
        y = self.second(x) * (1 + scale_2) + shift_2
        found: Tensor = x + gate_2 * self.down(functional.gelu(self.up(y), approximate="tanh"))
        return found


class _Diffusion(nn.Module):
    def __init__(self, size: int = 384, depth: int = 12) -> None:
        super().__init__()
        self.patches = nn.Linear(16, size)
        self.blocks = nn.ModuleList(_Block(size, 6) for _ in range(depth))
        self.norm, self.out = nn.LayerNorm(size), nn.Linear(size, 16)

    def forward(self, x: Tensor, c: Tensor) -> Tensor:
        x = self.patches(x)
        for block in self.blocks:
            x = block(x, c)
        found: Tensor = self.out(self.norm(x))
        return found


def _diffusion() -> tuple[nn.Module, _Given]:
    return _Diffusion(), {"x": torch.randn(1, 256, 16), "c": torch.randn(1, 384)}


MODELS: Final[dict[str, Callable[[], tuple[nn.Module, _Given]]]] = {
    "llama, 24 layers": _llama,
    "minilm, 6": _encoder,
    "vit, 12": _vision,
    "diffusion transformer, 12": _diffusion,
}
_WAYS: Final[dict[str, Callable[[nn.Module], Any]]] = {
    "whole": torch.compile,
    "regions": compile_regions,
}


def main() -> int:
    """Run the command; 1 where a result differs from the model's by more than rounding."""
    parser = argparse.ArgumentParser(prog="benchmarks.optimize.regions", description=__doc__)
    parser.add_argument("models", nargs="*", default=list(MODELS), help="names; all of them")
    parser.add_argument("--starts", type=int, default=2, help="cold starts of each; the least")
    parser.add_argument("--turns", type=int, default=15, help="warm calls of each; the median")
    parser.add_argument("--start", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    if options.start:
        name, way = options.start
        print(json.dumps(_start(name, way, options.turns)))
        return 0
    rows, good = [], True
    for name in track(options.models, "models", transient=True):
        cold: dict[str, list[float]] = {way: [] for way in _WAYS}
        for _ in range(options.starts):
            for way in _WAYS:
                cold[way].append(_child(name, way, options.turns)["cold"])
        warm = _child(name, "both", options.turns)
        least = {way: min(found) for way, found in cold.items()}
        good = good and warm["error"] < 1e-4
        rows.append(
            f"| {name} | {least['whole']:.1f} | {least['regions']:.1f} | "
            f"{least['whole'] / least['regions']:.1f} | {warm['eager']:.1f} | "
            f"{warm['whole']:.1f} | {warm['regions']:.1f} | "
            f"{warm['whole'] / warm['regions']:.2f} | {warm['error']:.0e} |"
        )
    print(
        "| model | cold whole, s | regions | times | eager, ms | whole | regions | times | error |"
    )
    print("| --- | --- | --- | --- | --- | --- | --- | --- | --- |")
    print(*rows, sep="\n")
    return 0 if good else 1


def _child(name: str, way: str, turns: int) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [
                *(sys.executable, "-m", "benchmarks.optimize.regions"),
                *("--start", name, way, "--turns", str(turns)),
            ],
            env=child_environ({"TORCHINDUCTOR_CACHE_DIR": folder}),
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def _start(name: str, way: str, turns: int) -> dict[str, float]:
    with torch.no_grad():
        return _measured(name, way, turns)


def _measured(name: str, way: str, turns: int) -> dict[str, float]:
    torch.manual_seed(0)
    model, given = MODELS[name]()
    model.eval()
    if way != "both":
        # What is imported and started once is no part of compiling this model.
        torch.compile(nn.Linear(4, 4))(torch.ones(1, 4))
        made = _WAYS[way](model)
        start = time.perf_counter()
        made(**given)
        return {"cold": time.perf_counter() - start}
    ways = {"eager": model, **{key: make(copy.deepcopy(model)) for key, make in _WAYS.items()}}
    results = {key: _tensor(run(**given)) for key, run in ways.items()}
    exact = results["eager"]
    error = max(float((found - exact).norm() / exact.norm()) for found in results.values())
    taken = milliseconds({key: partial(run, **given) for key, run in ways.items()}, turns)
    return {**taken, "error": error}


def _tensor(output: Any) -> Tensor:
    return output if isinstance(output, Tensor) else next(iter(output.values()))


if __name__ == "__main__":
    sys.exit(main())
