"""Whether a layer of a decoder is one whose way around its attention is known, found by trial."""

from __future__ import annotations

import copy
import inspect
import sys
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch import Tensor

from torchyard_kernels._accelerate._layers import is_untouched

__all__ = ["CHILDREN", "DecoderForm", "decoder_form"]

# Of a layer, and of its attention.
CHILDREN: Final = ("input_layernorm", "self_attn", "post_attention_layernorm", "mlp")
_PROJECTIONS: Final = ("q_proj", "k_proj", "v_proj", "o_proj")
# What a layer is given and may pass on to its attention.
_PASSED: Final = frozenset(
    {"position_ids", "use_cache", "cache", "past_key_values", "position_embeddings"}
)
# What a layer calls its cache: from transformers 5.24 on, and before.
_CACHES: Final = ("cache", "past_key_values")
_TRIAL: Final = 3
_NAME: Final = "torchyard_trial"


@dataclass(frozen=True, slots=True)
class DecoderForm:
    """What is known of a layer besides its weights.

    Attributes:
        epsilons: of the norm before attention and of that before the gated layer.
        constants: what its attention function is given besides tensors.
        passed: what it is given of what the layer is.
        cache: what the layer calls the cache that it is given.
    """

    epsilons: tuple[float, float]
    constants: tuple[tuple[str, Any], ...]
    passed: tuple[str, ...]
    cache: str


def decoder_form(layer: torch.nn.Module) -> DecoderForm | str:
    """Return a layer's form where it is::

        h = x + o(attention(rotary(q(norm(x))), cache(rotary(k(norm(x))), v(norm(x)))))
        out = h + mlp(norm(h))

    with RMSNorms and rotary embeddings of halves. Every tensor on the way has to be the same to the
    bit, for three random rows. What mlp does is for others to know.

    Returns:
        The form; or why the layer is of another, which is empty for what is no decoder's layer.
    """
    transformers: Any = sys.modules.get("transformers")
    if transformers is None or not {"self_attn", "mlp"} <= layer._modules.keys():
        return ""
    if sorted(layer._modules) != sorted(CHILDREN):
        return f"it has {', '.join(sorted(layer._modules))}, and not {', '.join(CHILDREN)}"
    before, attention, after, mlp = (layer._modules[name] for name in CHILDREN)
    if before is None or attention is None or after is None or mlp is None:
        return "a part of it is None"
    if sorted(attention._modules) != sorted(_PROJECTIONS):
        found = ", ".join(sorted(attention._modules))
        return f"its attention has {found}, and not {', '.join(_PROJECTIONS)}"
    first, second = _epsilon(before), _epsilon(after)
    if first is None or second is None:
        return "its norms are no RMSNorms of one weight and an epsilon"
    if not all(is_untouched(part) for part in layer.modules()):
        return "there are hooks on it or in it, or a forward of an object's own"
    if not isinstance(getattr(attention, "config", None), transformers.PreTrainedConfig):
        return "its attention has no configuration of transformers"
    try:
        with torch.no_grad():
            trial = _Trial(layer, attention)
            trial.run()
            different = trial.difference(first, second)
    except (TypeError, ValueError, RuntimeError, AttributeError, KeyError) as error:
        return f"a trial of it ended in {type(error).__name__}: {error}"
    return different or DecoderForm((first, second), *trial.given(), trial.cache)


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
        parameters = inspect.signature(type(layer).forward).parameters
        self.cache = next(name for name in _CACHES if name in parameters or name == _CACHES[-1])
        self.out: Any = None

    def update(
        self, key: Tensor, value: Tensor, layer_idx: Any, *others: Any, **named: Any
    ) -> tuple[Tensor, Tensor]:
        """Stand for the method of a cache: some are told what else the layer was given."""
        self.updates.append((key, value, layer_idx, *others))
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
                use_cache=True,
                position_embeddings=self.rotation,
                **{self.cache: self},
            )
        finally:
            self.attention.config = config
            del functions[_NAME]

    def difference(self, before: float, after: float) -> str:
        """Return what is not as the form says; empty where every tensor is."""
        layer, attention = self.layer, self.attention
        if len(self.calls) != 1 or len(self.updates) != 1 or type(self.out) is not Tensor:
            return "it does not call one attention function and one cache, or returns no tensor"
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
        if len(args) != 5 or args[0] is not attention or args[4] is not self.mask:
            return "it calls its attention function with other arguments"
        if self.updates[0][2:] != (attention.layer_idx,):
            return "it updates its cache with other arguments"
        for what, given, found in zip(
            ("query", "key", "value", "result"),
            (*args[1:4], self.out),
            (query, key, value, out),
            strict=True,
        ):
            if not torch.equal(given, found):
                return f"its {what} is computed in another way"
        other = [name for name, value in kwargs.items() if not _known(name, value)]
        return f"its attention function is given {', '.join(other)}" if other else ""

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
