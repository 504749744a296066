"""A decoder's layer that decodes one token by two chains and its attention."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from operator import is_
from typing import Any, Final
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from torchyard import registry
from torchyard_kernels._accelerate._cache import growing_layer
from torchyard_kernels._accelerate._decoder import DecoderForm
from torchyard_kernels._accelerate._modules import GatedMlp, PackedLinear, Projection
from torchyard_kernels._accelerate._row_chains import Weight, after_attention, before_attention
from torchyard_kernels._linear._packed_weight import PackedWeight
from torchyard_kernels._linear._request import request_of
from torchyard_kernels.contracts.linear import LINEAR, LinearCall, Packed, WeightSpec
from torchyard_programs import ProgramError, is_undisturbed

__all__ = ["DecoderStep", "derive", "forget", "stepping"]

_KEY: Final = f"{LINEAR}: decoder layers"
# The attribute of a layer that says its form.
_FORM: Final = "_torchyard_decoder_form"

_module: Any = torch.nn.modules.module
_GLOBAL_HOOKS: Final = (_module._global_forward_hooks, _module._global_forward_pre_hooks)


class DecoderStep:
    """What a layer's class is derived from besides its own, to decode one token in few calls.

    Whatever else the layer is asked for, it does as before: more tokens, gradients, other caches,
    hooks in it, recorded graphs.
    """

    training: bool

    def forward(self, hidden_states: Tensor, *args: Any, **kwargs: Any) -> Any:
        """Return what the layer's own class does."""
        if not (args or self.training or torch.compiler.is_compiling() or torch.is_grad_enabled()):
            found = _decoded(self, hidden_states, **kwargs)
            if found is not None:
                return found
        return super().forward(hidden_states, *args, **kwargs)  # type: ignore[misc]

    def __reduce_ex__(self, protocol: Any) -> Any:
        own = type(self).__mro__[2]
        made: Any = super().__reduce_ex__(protocol)
        return (_made, (own,), *made[2:])


@lru_cache(maxsize=64)
def stepping(own: Any) -> type:
    """Return a class of layers that decode in few calls, derived from a layer's own."""
    return type(own.__name__, (DecoderStep, own), {"__module__": own.__module__})


def derive(layer: torch.nn.Module, form: DecoderForm) -> None:
    """Let a layer decode in few calls."""
    setattr(layer, _FORM, form)
    own: Any = type(layer)
    layer.__class__ = stepping(own)


def forget(layer: torch.nn.Module) -> None:
    """Forget what is known of a layer that has its own class again."""
    delattr(layer, _FORM)
    registry().conclusions().get(_KEY, {}).pop(layer, None)


def _made(own: type) -> Any:
    kind: Any = stepping(own)
    return kind.__new__(kind)


class _State:
    """A layer's chains, and what they were made of.

    Attributes:
        before, after: the chains' functions.
        where, names, held: dictionaries, and what each must hold under a name still.
        weights, places: tensors, and the addresses that the chains have for them.
        hooks: dictionaries that must be empty.
        norms: the norms' weights.
        biases: of the two chains.
    """

    __slots__ = (
        *("after", "before", "biases", "held", "hooks", "names", "norms", "places", "weights"),
        "where",
    )

    def __init__(self, layer: Any) -> None:
        attention, mlp = layer.self_attn, layer.mlp
        self.where: list[dict[str, Any]] = []
        self.names: list[str] = []
        self.held: list[Any] = []
        self.weights: list[Tensor] = []
        self.places: list[int] = []
        self.hooks = list(_GLOBAL_HOOKS)
        self.norms = (layer.input_layernorm.weight, layer.post_attention_layernorm.weight)
        self.biases: tuple[tuple[Tensor, ...], tuple[Tensor, ...]] = ((), ())
        self.before: Callable[..., Tensor | None] | None = None
        self.after: Callable[..., Tensor | None] | None = None
        for module in (layer, attention, mlp):
            self._hold(module._modules)
        for module in list(layer.modules())[1:]:
            self.hooks += [module._forward_hooks, module._forward_pre_hooks]
            self._hold(module._parameters, module._buffers)
        shared = _projections(attention)
        if (
            shared is not None
            and type(mlp) is GatedMlp
            and type(attention.o_proj) is PackedLinear
            and type(mlp.down_proj) is PackedLinear
        ):
            self._hold(shared.packed._parameters, shared.packed._buffers)
            self._make(layer, (shared, attention.o_proj, mlp.gate_up, mlp.down_proj))

    def _hold(self, *dictionaries: dict[str, Any]) -> None:
        for where in dictionaries:
            self.where += [where] * len(where)
            self.names += where.keys()
            self.held += where.values()

    def _make(self, layer: Any, layers: tuple[PackedLinear, ...]) -> None:
        dtype, device = self.norms[0].dtype, self.norms[0].device
        weights = [_weight(part) for part in layers]
        tensors = [*self.norms, *(bias for _, bias in weights if bias is not None)]
        alike = all(tensor.dtype == dtype and tensor.device == device for tensor in tensors)
        if not alike or any(part.packed.dtype != dtype for part in layers):
            return
        kernels = {id(found): found for found in (_kernel(*w, dtype, device) for w in weights)}
        offer = getattr(next(iter(kernels.values())), "chain", None) if len(kernels) == 1 else None
        if offer is None:
            return
        form: DecoderForm = getattr(layer, _FORM)
        attention, width = layer.self_attn, self.norms[0].shape[0]
        size = attention.head_dim
        heads = attention.q_proj.out_features // size, attention.k_proj.out_features // size
        try:
            before = before_attention(dtype, device, width, size, heads, weights[0], form)
            after = after_attention(
                dtype,
                device,
                width,
                (weights[1], weights[2], weights[3]),
                layer.mlp.act_fn,
                form,
            )
        except (ProgramError, ValueError):
            return
        self.before, self.after = offer(before), offer(after)
        # Chains go by them; a tensor may get other memory.
        self.weights = [tensor for packed, _ in weights for tensor in packed.tensors]
        self.places = [tensor.data_ptr() for tensor in self.weights]
        self.biases = (
            tuple(bias for _, bias in weights[:1] if bias is not None),
            tuple(bias for _, bias in weights[1:] if bias is not None),
        )

    def stands(self) -> bool:
        """Return whether everything is as it was.

        By loops in C: weights that stream past leave little of Python in the caches, and what these
        few lines need of it is fetched anew for each layer.
        """
        return all(map(is_, map(dict.get, self.where, self.names), self.held)) and (
            list(map(Tensor.data_ptr, self.weights)) == self.places
        )


def _projections(attention: Any) -> PackedLinear | None:
    parts = [attention.q_proj, attention.k_proj, attention.v_proj]
    if any(type(part) is not Projection or not part._shared for part in parts):
        return None
    shared = parts[0]._shared[0]
    return shared.layer if all(part._shared[0] is shared for part in parts) else None


def _weight(layer: PackedLinear) -> Weight:
    packed: PackedWeight = layer.packed
    spec = WeightSpec.parse(packed.spec_text)
    return Packed(spec, tuple(packed.tensors)), layer.bias


def _kernel(packed: Packed, bias: Tensor | None, dtype: torch.dtype, device: torch.device) -> Any:
    x = torch.empty((1, packed.spec.columns), dtype=dtype, device=device)
    return registry().resolve(LINEAR, request_of(LinearCall(x, packed, bias)))


def _state_of(layer: Any) -> _State:
    # From before the decisions: then a change that comes between drops them.
    conclusions = registry().conclusions()
    known = conclusions.get(_KEY)
    if known is None:
        known = conclusions.setdefault(_KEY, WeakKeyDictionary())
    state: _State | None = known.get(layer)
    if state is None or not state.stands():
        state = known[layer] = _State(layer)
    return state


def _decoded(
    layer: Any,
    x: Tensor,
    attention_mask: Any = None,
    position_ids: Any = None,
    past_key_values: Any = None,
    use_cache: Any = None,
    position_embeddings: Any = None,
    **others: Any,
) -> Tensor | None:
    """Compute a layer for one token; None, without an effect, where that is not possible."""
    if (
        type(x) is not Tensor
        or x.ndim != 3
        or x.shape[0] * x.shape[1] != 1
        or past_key_values is None
        or position_embeddings is None
        or any(value is not None for value in others.values())
        or not is_undisturbed()
        or torch.is_autocast_enabled(x.device.type)
    ):
        return None
    state = _state_of(layer)
    if state.before is None or state.after is None or any(state.hooks):
        return None
    attention = layer.self_attn
    functions, cached = _transformers()
    # Of "eager" each model has its own, which only its code knows.
    attend = functions.get(attention.config._attn_implementation)
    if attend is None or type(past_key_values) is not cached or past_key_values.offloading:
        return None
    kept = past_key_values.layers
    if attention.layer_idx >= len(kept) or type(kept[attention.layer_idx]) is not growing_layer():
        return None
    cache = kept[attention.layer_idx]
    places = cache.next_places()
    if places is None:
        return None
    query = state.before(x, state.norms[0], *position_embeddings, *places, *state.biases[0])
    if query is None:
        return None
    form: DecoderForm = layer.__dict__[_FORM]
    given: Any = dict(form.constants)
    if form.passed:
        passed = {
            "position_ids": position_ids,
            "use_cache": use_cache,
            "past_key_values": past_key_values,
            "position_embeddings": position_embeddings,
        }
        given.update((name, passed[name]) for name in form.passed)
    keys, values = cache.take_next()
    attended, _ = attend(attention, query, keys, values, attention_mask, **given)
    attended = attended.reshape(1, 1, -1)
    out = state.after(attended, x, state.norms[1], *state.biases[1])
    return _by_modules(layer, attended, x) if out is None else out


def _by_modules(layer: Any, attended: Tensor, x: Tensor) -> Tensor:
    """Compute what follows attention by the layer's modules: what it gave was of another form."""
    hidden: Tensor = x + layer.self_attn.o_proj(attended)
    out: Tensor = hidden + layer.mlp(layer.post_attention_layernorm(hidden))
    return out


@lru_cache(maxsize=1)
def _transformers() -> tuple[Any, Any]:
    from transformers import DynamicCache
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

    return ALL_ATTENTION_FUNCTIONS, DynamicCache
