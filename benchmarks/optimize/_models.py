"""Twelve models of transformers and torch, of random weights, with a call of each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final

import torch
import transformers
from torch import Tensor, nn

__all__ = ["MODELS", "build", "tensors_of"]

_WIDTH: Final = 512
_TEXT: Final = {
    "hidden_size": _WIDTH,
    "intermediate_size": 4 * _WIDTH,
    "num_hidden_layers": 6,
    "num_attention_heads": 8,
    "vocab_size": 8000,
}
_PICTURE: Final = {"pixel_values": (1, 3, 224, 224)}
_Built = tuple[nn.Module, dict[str, Tensor | bool]]


class _Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(8000, _WIDTH)
        self.recurrent = nn.LSTM(_WIDTH, _WIDTH, num_layers=2, batch_first=True)
        self.head = nn.Linear(_WIDTH, 8000)

    def forward(self, input_ids: Tensor) -> Tensor:
        found: Tensor = self.head(self.recurrent(self.embedding(input_ids))[0])
        return found


def _text(model: Any, **more: bool) -> _Built:
    generator = torch.Generator().manual_seed(0)
    return model, {"input_ids": torch.randint(8000, (1, 128), generator=generator), **more}


def _decoder(config: Any) -> _Built:
    return _text(transformers.AutoModelForCausalLM.from_config(config), use_cache=False)


def _seen(model: Any, shapes: Mapping[str, tuple[int, ...]], **more: Tensor) -> _Built:
    generator = torch.Generator().manual_seed(0)
    given = {name: torch.randn(shape, generator=generator) for name, shape in shapes.items()}
    return model, {**given, **more}


def _t5() -> _Built:
    config = transformers.T5Config(
        d_model=_WIDTH, d_kv=64, d_ff=4 * _WIDTH, num_layers=6, num_heads=8, vocab_size=8000
    )
    model, given = _text(transformers.T5Model(config))
    return model, {**given, "decoder_input_ids": torch.arange(1, 33)[None]}


def _whisper() -> _Built:
    config = transformers.WhisperConfig(
        d_model=384,
        encoder_layers=4,
        decoder_layers=4,
        encoder_attention_heads=6,
        decoder_attention_heads=6,
        encoder_ffn_dim=1536,
        decoder_ffn_dim=1536,
    )
    model = transformers.WhisperModel(config)
    return _seen(
        model, {"input_features": (1, 80, 3000)}, decoder_input_ids=torch.arange(1, 9)[None]
    )


MODELS: Final[Mapping[str, Callable[[], _Built]]] = MappingProxyType(
    {
        "llama": lambda: _decoder(transformers.LlamaConfig(**_TEXT, num_key_value_heads=4)),
        "qwen3": lambda: _decoder(
            transformers.Qwen3Config(**_TEXT, num_key_value_heads=4, head_dim=64)
        ),
        "mistral": lambda: _decoder(
            transformers.MistralConfig(**_TEXT, num_key_value_heads=4, sliding_window=64)
        ),
        "gpt2": lambda: _decoder(
            transformers.GPT2Config(n_embd=_WIDTH, n_layer=6, n_head=8, vocab_size=8000)
        ),
        "bert": lambda: _text(transformers.BertModel(transformers.BertConfig(**_TEXT))),
        "distilbert": lambda: _text(
            transformers.DistilBertModel(
                transformers.DistilBertConfig(
                    dim=_WIDTH, hidden_dim=4 * _WIDTH, n_layers=6, n_heads=8, vocab_size=8000
                )
            )
        ),
        "t5": _t5,
        "vit": lambda: _seen(
            transformers.ViTModel(
                transformers.ViTConfig(
                    hidden_size=384,
                    intermediate_size=1536,
                    num_hidden_layers=6,
                    num_attention_heads=6,
                )
            ),
            _PICTURE,
        ),
        "resnet": lambda: _seen(
            transformers.ResNetModel(transformers.ResNetConfig(depths=[2, 2, 2, 2])), _PICTURE
        ),
        "hubert": lambda: _seen(
            transformers.HubertModel(
                transformers.HubertConfig(
                    hidden_size=384,
                    intermediate_size=1536,
                    num_hidden_layers=4,
                    num_attention_heads=6,
                )
            ),
            {"input_values": (1, 16_000)},
        ),
        "whisper": _whisper,
        "lstm": lambda: _text(_Recurrent()),
    }
)


def build(name: str, dtype: str) -> _Built:
    """Return a model in evaluation, with the same weights each time, and a call of it."""
    torch.manual_seed(0)
    model, given = MODELS[name]()
    kind = getattr(torch, dtype)
    return model.eval().to(kind), {
        key: value.to(kind) if isinstance(value, Tensor) and value.is_floating_point() else value
        for key, value in given.items()
    }


def tensors_of(output: object) -> list[Tensor]:
    """Return the tensors of what a model gave."""
    values = [output] if isinstance(output, Tensor) else getattr(output, "values", list)()
    return [value for value in values if isinstance(value, Tensor)]
