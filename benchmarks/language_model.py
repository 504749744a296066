"""One contestant of benchmarks.language that runs in torch, in a process of its own.

``python -m benchmarks.language_model KIND WEIGHTS ACTIVATION LAYERS THREADS LOGITS`` reads commands
from its input, one a line, and answers each with a line of JSON.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor

__all__ = ["SHAPE", "config_of", "serve"]

# The shape of a Llama of a billion parameters.
SHAPE: Final = {
    "hidden_size": 2048,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 64,
    "intermediate_size": 8192,
    "vocab_size": 32000,
    "max_position_embeddings": 8192,
    "tie_word_embeddings": False,
}
# Tokens whose logits are compared.
_CHECKED: Final = 16


def config_of(layers: int) -> Any:
    """Return the configuration of the model."""
    from transformers import LlamaConfig

    return LlamaConfig(num_hidden_layers=layers, **SHAPE)


class _Model:
    """A contestant's model and what it holds between commands."""

    def __init__(self, kind: str, weights: str, activation: str, layers: int) -> None:
        from transformers import LlamaForCausalLM

        torch.manual_seed(0)
        config = config_of(layers)
        # Weights rounded to few bits are those of a bfloat16 model.
        name = "bfloat16" if weights.startswith("int") else weights
        config._attn_implementation = "torchyard" if kind == "torchyard" else "sdpa"
        if kind == "torchyard":
            from torchyard_attention.transformers import register

            register()
        model = LlamaForCausalLM(config).to(getattr(torch, name)).eval()
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
            self.report = accelerate(model, **chosen).report
            self.weight_bytes = self.report.bytes_after
            print(self.report.render().splitlines()[:5], file=sys.stderr)
        self.model: Any = model
        self.call: Any = torch.compile(model) if kind == "compiled" else model
        self.config = config
        self.compiled = kind == "compiled"

    def prefill(self, length: int) -> float:
        """Return the seconds that a prompt takes."""
        tokens = torch.arange(length)[None] % self.config.vocab_size
        start = time.perf_counter()
        self.call(tokens, use_cache=not self.compiled, logits_to_keep=1)
        return time.perf_counter() - start

    def decode(self, length: int, steps: int) -> float:
        """Return the seconds that steps take behind a prompt of any keys and values."""
        cache = self._cache(length, steps)
        token = torch.tensor([[7]])
        token = self._step(token, cache, length)
        start = time.perf_counter()
        for position in range(length + 1, length + 1 + steps):
            token = self._step(token, cache, position)
        return time.perf_counter() - start

    def _step(self, token: Tensor, cache: Any, position: int) -> Tensor:
        given: dict[str, Any] = {}
        if self.compiled:
            given["position_ids"] = torch.tensor([[position]])
        out = self.call(token, past_key_values=cache, use_cache=True, **given)
        chosen: Tensor = out.logits[:, -1].argmax(-1, keepdim=True)
        return chosen

    def _cache(self, length: int, steps: int) -> Any:
        from transformers import DynamicCache, StaticCache

        config = self.config
        if self.compiled:
            cache: Any = StaticCache(config=config, max_cache_len=length + steps + 1)
        else:
            cache = DynamicCache(config=config)
        heads, size = config.num_key_value_heads, config.head_dim
        for layer in range(config.num_hidden_layers):
            keys = torch.randn(1, heads, length, size).to(self.model.dtype)
            cache.update(keys, keys * 0.5, layer)
        return cache

    def logits(self) -> Tensor:
        """Return the logits [16, vocabulary] of a few tokens, as float32."""
        tokens = torch.arange(100, 100 + _CHECKED)[None]
        found: Tensor = self.model(tokens).logits[0].float()
        return found


def serve(kind: str, weights: str, activation: str, layers: int, exact: Path) -> None:
    """Answer commands until there are no more: ``check``, ``prefill N``, ``decode N STEPS``.

    The contestant ``exact`` writes the logits that ``check`` of the others compares with.
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
            elif kind == "exact":
                torch.save(model.logits(), exact)
                answer = 0.0
            else:
                truth = torch.load(exact)
                answer = float((model.logits() - truth).norm() / truth.norm())
            print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    torch.set_num_threads(int(sys.argv[5]))
    serve(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]), Path(sys.argv[6]))
