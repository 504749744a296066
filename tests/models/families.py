"""Small models of transformers with random weights, and text for them."""

from __future__ import annotations

import ast
import copy
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import torch
import transformers
from torch import Tensor

__all__ = ["FAMILIES", "WINDOW", "Family", "largest", "text"]

WINDOW: Final = 24

# Weights so large that attention is far from even: what a mask, a cap or a sink changes is seen.
_SPREAD: Final = 0.3

_SIZES: Final = {
    "vocab_size": 256,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": None,
    "initializer_range": _SPREAD,
}


@dataclass(frozen=True, slots=True)
class Family:
    """Models of one architecture.

    Attributes:
        name: the configuration's class, without its ending.
        options: what this configuration says besides the sizes.
        changes: names of what sets the architecture apart, with the options that change it.
    """

    name: str
    options: dict[str, Any]
    changes: dict[str, dict[str, Any]]

    def changed(self, change: str) -> Family:
        """Return the family with other options."""
        return replace(self, options={**self.options, **self.changes[change]})

    def model(self, attention: str, dtype: torch.dtype = torch.float32) -> Any:
        """Return the model with an attention implementation; the weights are always the same.

        Args:
            attention: for ``attn_implementation``.
            dtype: float64 holds the weights of bfloat16's model, too, as they are rounded first.
        """
        torch.manual_seed(1)
        config = getattr(transformers, f"{self.name}Config")(**{**_SIZES, **self.options})
        model = transformers.AutoModelForCausalLM.from_config(
            copy.deepcopy(config),
            attn_implementation=attention,
            # The grouped product of experts knows no float64.
            experts_implementation="eager" if dtype == torch.float64 else None,
        )
        for name, parameter in model.named_parameters():
            parameter.data = parameter.data.bfloat16().float()
            if name.endswith("sinks"):
                parameter.data = torch.linspace(-2.0, 3.0, parameter.numel())
        return model.to(dtype).eval()


FAMILIES: Final = {
    family.name: family
    for family in (
        Family("Llama", {"head_dim": 16}, {}),
        Family("Qwen3", {"head_dim": 16}, {}),
        Family(
            "Mistral",
            {"head_dim": 16, "sliding_window": WINDOW},
            {"window": {"sliding_window": WINDOW + 1}},
        ),
        Family(
            "Gemma2",
            {
                "head_dim": 16,
                "sliding_window": WINDOW,
                "query_pre_attn_scalar": 16,
                "attn_logit_softcapping": 5.0,
            },
            {
                "window": {"sliding_window": WINDOW + 1},
                "softcap": {"attn_logit_softcapping": 5.1},
            },
        ),
        # All experts take part: which ones are taken would turn the last bit into another result.
        Family(
            "GptOss",
            {
                "head_dim": 16,
                "sliding_window": WINDOW,
                "num_local_experts": 2,
                "num_experts_per_tok": 2,
                "rope_parameters": {"rope_type": "default", "rope_theta": 10_000.0},
            },
            {"window": {"sliding_window": WINDOW + 1}},
        ),
    )
}


def text(batch: int, length: int) -> Tensor:
    """Return bytes of the standard library's source as tokens: int64 [batch, length], never 0."""
    source = Path(ast.__file__).read_bytes()
    rows = [list(source[row * 1000 : row * 1000 + length]) for row in range(1, batch + 1)]
    return torch.tensor(rows)


def largest(left: Tensor, right: Tensor, where: Tensor | None = None) -> float:
    """Return the largest difference, of those positions only where one is given."""
    difference = (left.double() - right.double()).abs()
    return float((difference if where is None else difference[where]).max())
