"""Whether a layer of a decoder is one whose way around its attention is known, found by trial."""

from __future__ import annotations

import copy
import sys
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch import Tensor

__all__ = ["CHILDREN", "DecoderForm", "decoder_form"]

# Of a layer, and of its attention.
CHILDREN: Final = ("input_layernorm", "self_attn", "post_attention_layernorm", "mlp")
_PROJECTIONS: Final = ("q_proj", "k_proj", "v_proj", "o_proj")
# What a layer is given and may pass on to its attention.
_PASSED: Final = frozenset({"position_ids", "use_cache", "past_key_values", "position_embeddings"})
_TRIAL: Final = 3
_NAME: Final = "torchyard_trial"


@dataclass(frozen=True, slots=True)
class DecoderForm:
    """What is known of a layer besides its weights.

    Attributes:
        epsilons: of the norm before attention and of that before the gated layer.
        constants: what its attention function is given besides tensors.
        passed: what it is given of what the layer is.
    """

    epsilons: tuple[float, float]
    constants: tuple[tuple[str, Any], ...]
    passed: tuple[str, ...]


def decoder_form(layer: torch.nn.Module) -> DecoderForm | None:
    """Return a layer's form where it is::

        h = x + o(attention(rotary(q(norm(x))), cache(rotary(k(norm(x))), v(norm(x)))))
        out = h + mlp(norm(h))

    with RMSNorms and rotary embeddings of halves. Every tensor on the way has to be the same to the
    bit, for three random rows. What mlp does is for others to know.
    """
    transformers: Any = sys.modules.get("transformers")
    if transformers is None or tuple(sorted(layer._modules)) != tuple(sorted(CHILDREN)):
        return None
    before, attention, after, mlp = (layer._modules[name] for name in CHILDREN)
    if before is None or attention is None or after is None or mlp is None:
        return None
    first, second = _epsilon(before), _epsilon(after)
    if (
        tuple(sorted(attention._modules)) != tuple(sorted(_PROJECTIONS))
        or first is None
        or second is None
        or any(part._forward_hooks or part._forward_pre_hooks for part in layer.modules())
        or not isinstance(getattr(attention, "config", None), transformers.PreTrainedConfig)
    ):
        return None
    try:
        with torch.no_grad():
            trial = _Trial(layer, attention)
            trial.run()
            same = trial.holds(first, second)
    except (TypeError, ValueError, RuntimeError, AttributeError, KeyError):
        return None
    return DecoderForm((first, second), *trial.given()) if same else None


def _epsilon(norm: torch.nn.Module) -> float | None:
    found = getattr(norm, "variance_epsilon", getattr(norm, "eps", None))
    weight = norm._parameters.get("weight")
    plain = type(weight) is torch.nn.Parameter and weight.ndim == 1 and len(norm._parameters) == 1
    return found if isinstance(found, float) and plain and not norm._modules else None


class _Trial:
    """A run of a layer whose attention and cache only note what they are given."""

    def __init__(self, layer: torch.nn.Module, attention: Any) -> None:
        self.layer: Any = layer
        self.attention = attention
        weight = attention.q_proj.weight
        generator = torch.Generator().manual_seed(0)

        def random(*shape: int) -> Tensor:
            return torch.randn(shape, generator=generator).to(weight)

        size, width = attention.head_dim, attention.q_proj.in_features
        self.x = random(1, _TRIAL, width)
        self.rotation = random(1, _TRIAL, size), random(1, _TRIAL, size)
        self.attended = random(1, _TRIAL, attention.o_proj.in_features // size, size)
        self.mask = torch.zeros(1, 1, _TRIAL, _TRIAL, dtype=torch.bool, device=weight.device)
        self.positions = torch.arange(_TRIAL, device=weight.device)[None]
        self.calls: list[tuple[tuple[Any, ...], dict[str, Any]]] = []
        self.updates: list[tuple[Any, ...]] = []
        self.out: Any = None

    def update(self, key: Tensor, value: Tensor, *others: Any) -> tuple[Tensor, Tensor]:
        """Stand for the method of a cache."""
        self.updates.append((key, value, *others))
        return key, value

    def _attend(self, *args: Any, **kwargs: Any) -> tuple[Tensor, None]:
        self.calls.append((args, kwargs))
        return self.attended, None

    def run(self) -> None:
        """Run the layer once."""
        from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

        functions: Any = ALL_ATTENTION_FUNCTIONS
        config = self.attention.config
        functions[_NAME] = self._attend
        try:
            self.attention.config = copy.copy(config)
            self.attention.config._attn_implementation = _NAME
            self.out = self.layer(
                self.x,
                attention_mask=self.mask,
                position_ids=self.positions,
                past_key_values=self,
                use_cache=True,
                position_embeddings=self.rotation,
            )
        finally:
            self.attention.config = config
            del functions[_NAME]

    def holds(self, before: float, after: float) -> bool:
        """Return whether every tensor is what the form says."""
        layer, attention = self.layer, self.attention
        if len(self.calls) != 1 or len(self.updates) != 1 or type(self.out) is not Tensor:
            return False
        args, kwargs = self.calls[0]
        normed = _normed(self.x, layer.input_layernorm.weight, before)
        shape = (1, _TRIAL, -1, attention.head_dim)
        query, key, value = (
            part(normed).view(shape).transpose(1, 2)
            for part in (attention.q_proj, attention.k_proj, attention.v_proj)
        )
        query, key = (_rotated(x, *self.rotation) for x in (query, key))
        hidden = self.x + attention.o_proj(self.attended.reshape(1, _TRIAL, -1))
        out = hidden + layer.mlp(_normed(hidden, layer.post_attention_layernorm.weight, after))
        return (
            len(args) == 5
            and args[0] is attention
            and args[4] is self.mask
            and self.updates[0][2:] == (attention.layer_idx,)
            and all(
                torch.equal(given, found)
                for given, found in zip(
                    (*args[1:4], self.out), (query, key, value, out), strict=True
                )
            )
            and all(_known(name, value) for name, value in kwargs.items())
        )

    def given(self) -> tuple[tuple[tuple[str, Any], ...], tuple[str, ...]]:
        """Return what the attention function was given: constants, and what the layer was."""
        kwargs = self.calls[0][1]
        constants = tuple((name, kwargs[name]) for name in kwargs if name not in _PASSED)
        return constants, tuple(name for name in kwargs if name in _PASSED)


def _known(name: str, value: Any) -> bool:
    return name in _PASSED or value is None or type(value) in (bool, int, float, str)


def _normed(x: Tensor, weight: Tensor, epsilon: float) -> Tensor:
    wide = x.to(torch.float32)
    scale = torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + epsilon)
    return weight * (wide * scale).to(x.dtype)


def _rotated(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    first, second = x.chunk(2, -1)
    return x * cos[:, None] + torch.cat((-second, first), -1) * sin[:, None]
