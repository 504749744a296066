"""One contestant of benchmarks.language that runs in torch, in a process of its own.

``python -m benchmarks.language.model KIND WEIGHTS ACTIVATION LAYERS THREADS LOGITS`` reads commands
from its input, one a line, and answers each with a line of JSON.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor

from benchmarks.language.shape import CHECKED, SHAPE, STEPS

__all__ = ["answer_commands", "config_of"]

# The standard deviation of weights.
_SPREAD: Final = 0.02


def config_of(layers: int) -> Any:
    """Return the configuration of the model."""
    from transformers import LlamaConfig

    return LlamaConfig(num_hidden_layers=layers, **SHAPE)


class _Model:
    """A contestant's model and what it holds between commands."""

    def __init__(self, kind: str, weights: str, activation: str, layers: int) -> None:
        self.config = config_of(layers)
        self.config._attn_implementation = "torchyard" if kind == "torchyard" else "sdpa"
        if kind == "torchyard":
            from torchyard_attention.transformers import register

            register()
        # Weights rounded to few bits are those of a bfloat16 model.
        name = "bfloat16" if weights.startswith("int") else weights
        model = _random_model(self.config, getattr(torch, name))
        linear = [m.weight for m in model.modules() if isinstance(m, torch.nn.Linear)]
        self.weight_bytes = sum(weight.nbytes for weight in linear)
        self.products = sum(weight.numel() for weight in linear)
        del linear
        if kind == "torchyard":
            from torchyard_kernels import accelerate

            chosen: Any = {"weights": weights, "keep_originals": False}
            if weights == "int4":
                chosen["group_size"] = 32
            if activation != "none":
                chosen["activation"] = activation
            report = accelerate(model, **chosen).report
            self.weight_bytes = report.bytes_after
            print("\n".join(report.render().splitlines()[:5]), file=sys.stderr)
        self.model: Any = model
        self.compiled = kind == "compiled"
        self.call: Any = model
        self._compiled_for = ""
        self._static: Any = None

    def prefill(self, length: int) -> float:
        """Return the seconds that a prompt takes."""
        self._compile(f"prefill {length}")
        tokens = torch.arange(length)[None] % self.config.vocab_size
        start = time.perf_counter()
        self.call(tokens, use_cache=not self.compiled, logits_to_keep=1)
        return time.perf_counter() - start

    def decode(self, length: int, steps: int) -> float:
        """Return the seconds that steps take behind a prompt of any keys and values."""
        self._compile(f"decode {length}")
        cache = self._cache(length)
        token = self._step(torch.tensor([[7]]), cache, length).argmax(-1)
        start = time.perf_counter()
        for position in range(length + 1, length + 1 + steps):
            token = self._step(token, cache, position).argmax(-1)
        return time.perf_counter() - start

    def export(self, folder: Path) -> None:
        """Write each weight as float16, for those who have no torch."""
        for name, parameter in self.model.named_parameters():
            np.save(folder / f"{name}.npy", parameter.detach().half().numpy())

    def logits(self) -> Tensor:
        """Return the logits [16, vocabulary] of a few tokens, as float32.

        Half of them are read at once, and the others one by one behind these.
        """
        self._compile("check")
        tokens = torch.arange(100, 100 + CHECKED)[None]
        half = CHECKED // 2
        cache = self._empty_cache(CHECKED)
        found = [self._read(tokens[:, :half], cache, 0)]
        for position in range(half, CHECKED):
            found.append(self._step(tokens[:, position : position + 1], cache, position))
        return torch.cat(found, 1)[0].float()

    def _compile(self, task: str) -> None:
        """Compile for one task at a time, with the weights as constants, which torch runs fastest.

        A graph for any length is slower, and each graph of constants holds a copy of the weights.
        """
        if not self.compiled or task == self._compiled_for:
            return
        import torch._inductor.config as inductor

        inductor.freezing = True
        torch._dynamo.reset()
        self.call, self._compiled_for = torch.compile(self.model, dynamic=False), task
        self._static = None

    def _read(self, tokens: Tensor, cache: Any, position: int) -> Tensor:
        """Return the logits [1, S, vocabulary] of tokens behind a cache's."""
        given: dict[str, Any] = {}
        if self.compiled:
            given["position_ids"] = torch.arange(position, position + tokens.shape[1])[None]
        found: Tensor = self.call(tokens, past_key_values=cache, use_cache=True, **given).logits
        return found

    def _step(self, token: Tensor, cache: Any, position: int) -> Tensor:
        return self._read(token, cache, position)

    def _empty_cache(self, most: int) -> Any:
        from transformers import DynamicCache, StaticCache

        if self.compiled:
            # The graph holds the addresses of the cache that it was compiled with.
            if self._static is None:
                self._static = StaticCache(config=self.config, max_cache_len=most)
            self._static.reset()
            return self._static
        return DynamicCache(config=self.config)

    def _cache(self, length: int) -> Any:
        config, cache = self.config, self._empty_cache(length + STEPS + 1)
        heads, size = config.num_key_value_heads, config.head_dim
        for layer in range(config.num_hidden_layers):
            keys = torch.randn(1, heads, length, size).to(self.model.dtype)
            cache.update(keys, keys * 0.5, layer)
        return cache


def _random_model(config: Any, dtype: torch.dtype) -> Any:
    """Return a model whose weights are the same in every dtype, but for rounding."""
    from transformers import LlamaForCausalLM
    from transformers.initialization import no_init_weights

    with no_init_weights():
        model = LlamaForCausalLM._from_config(config, dtype=dtype).eval()
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim == 1:
                parameter.fill_(1)
                continue
            # In parts: a matrix of float32 beside the model is not held.
            for rows in parameter.split(1024):
                rows.copy_(torch.randn(rows.shape, generator=generator) * _SPREAD)
    return model


def answer_commands(kind: str, weights: str, activation: str, layers: int, exact: Path) -> None:
    """Answer commands until there are no more: ``check``, ``prefill N``, ``decode N STEPS``.

    The contestant ``exact`` writes the logits that ``check`` of the others compares with, and by
    ``export`` its weights into that file's folder.
    """
    model = _Model("stock" if kind == "exact" else kind, weights, activation, layers)
    config = model.config
    per_key = 2 * config.num_key_value_heads * config.head_dim * model.model.dtype.itemsize
    print(
        json.dumps(
            {
                "weight_bytes": model.weight_bytes,
                "products": model.products,
                "bytes_per_key": per_key * layers,
            }
        ),
        flush=True,
    )
    with torch.inference_mode():
        for line in sys.stdin:
            command, *words = line.split()
            numbers = [int(word) for word in words]
            if command == "prefill":
                answer = model.prefill(*numbers)
            elif command == "decode":
                answer = model.decode(*numbers)
            elif command == "export":
                model.export(exact.parent)
                answer = 0.0
            elif kind == "exact":
                np.save(exact, model.logits().numpy())
                answer = 0.0
            else:
                truth = torch.from_numpy(np.load(exact))
                answer = float((model.logits() - truth).norm() / truth.norm())
            print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    torch.set_num_threads(int(sys.argv[5]))
    answer_commands(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]), Path(sys.argv[6]))
