"""A decoder's layer that decodes one token by two chains and its attention."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from operator import attrgetter, is_
from typing import Any, Final
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from torchyard import registry
from torchyard.dispatch import decision_cache, no_active_modes
from torchyard_kernels._accelerate._layers import biases, packed_storage
from torchyard_kernels._accelerate.decoder._cache import growing_layer
from torchyard_kernels._accelerate.decoder._form import CHILDREN, DecoderForm
from torchyard_kernels._accelerate.decoder._row_chains import (
    Weight,
    after_attention,
    before_attention,
)
from torchyard_kernels._accelerate.gated._forward import GatedForward
from torchyard_kernels.linear._weights.packed_weight import PackedWeight
from torchyard_kernels.linear._weights.storage import Part, WeightStorage, join
from torchyard_kernels.linear.contract import LINEAR, LinearCall, Packed
from torchyard_programs import ProgramError

__all__ = ["DecoderForward"]

_KEY: Final = f"{LINEAR}: decoder layers"
_HELD: Final = attrgetter("_storage")
_PART: Final = attrgetter("part")
# What an attribute may be that a trial's outcome depends on.
_SIMPLE: Final = (bool, int, float, str, type(None))

_module: Any = torch.nn.modules.module
_GLOBAL_HOOKS: Final = (_module._global_forward_hooks, _module._global_forward_pre_hooks)


class DecoderForward:
    """A forward that decodes one token in few calls, put on a layer in place of its own.

    Whatever else the layer is asked for, its class computes as it always did: more tokens,
    gradients, other caches, other modules in it, hooks on them, recorded graphs.

    Attributes:
        layer: whose forward it is.
        form: what is known of the layer.
        children: its modules that this is known of.
        settings: their attributes that are numbers, flags or texts, as they were then.
    """

    def __init__(self, layer: torch.nn.Module, form: DecoderForm) -> None:
        self.layer = layer
        self.form = form
        self.children = [layer._modules[name] for name in CHILDREN]
        self.settings = [_settings(module) for module in self._modules()]

    def _modules(self) -> list[Any]:
        mlp: Any = self.children[-1]
        act = getattr(mlp, "act_fn", None)
        return [*self.children, act] if isinstance(act, torch.nn.Module) else [*self.children]

    def reason_against(self) -> str:
        """Return why the layer does not decode in few calls, as it is now; empty where it does."""
        return _State(self).reason

    def stale(self) -> str:
        """Return what of the layer is no longer what is known; empty where everything is."""
        if any(
            self.layer._modules.get(name) is not child
            for name, child in zip(CHILDREN, self.children, strict=True)
        ):
            return "other modules were put in it"
        if type(vars(self.children[-1]).get("forward")) is not GatedForward:
            return "its gated layer is not computed at once"
        modules = self._modules()
        if [_settings(module) for module in modules] != self.settings:
            return "attributes of its modules were changed"
        return ""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Return what the layer's class does."""
        layer = self.layer
        if len(args) == 1 and not (
            layer.training or torch.compiler.is_compiling() or torch.is_grad_enabled()
        ):
            found = _decoded(self, *args, **kwargs)
            if found is not None:
                return found
        return type(layer).forward(layer, *args, **kwargs)


def _settings(module: torch.nn.Module) -> dict[str, Any]:
    return {name: value for name, value in vars(module).items() if type(value) in _SIMPLE}


class _State:
    """A layer's chains, and what they were made of.

    Attributes:
        before, after: the chains' functions.
        where, names, held: dictionaries, and what each must hold under a name still.
        weights, places: tensors, and the addresses that the chains have for them.
        hooks: dictionaries that must be empty.
        norms: the norms' weights.
        biases: of the layers whose weights are the chains', in order, or None of each.
        owners, storages, parts: the layers' weights, what these held, and in which packed form.
        reason: why there are no chains; empty where there are.
    """

    __slots__ = (
        *("after", "before", "biases", "held", "storages", "hooks", "names", "norms", "owners"),
        *("parts", "places", "reason", "weights", "where"),
    )

    def __init__(self, forward: DecoderForward) -> None:
        layer: Any = forward.layer
        attention, mlp = layer.self_attn, layer.mlp
        self.where: list[dict[str, Any]] = []
        self.names: list[str] = []
        self.held: list[Any] = []
        self.weights: list[Tensor] = []
        self.places: list[int] = []
        self.hooks = list(_GLOBAL_HOOKS)
        self.norms = (layer.input_layernorm.weight, layer.post_attention_layernorm.weight)
        self.biases: tuple[tuple[list[Tensor], ...], ...] = ((), ())
        self.owners: list[Any] = []
        self.storages: list[WeightStorage] = []
        self.parts: list[Part | None] = []
        self.reason = forward.stale()
        self.before: Callable[..., Tensor | None] | None = None
        self.after: Callable[..., Tensor | None] | None = None
        for module in (layer, attention, mlp):
            self._hold(module._modules)
        for module in list(layer.modules())[1:]:
            self.hooks += [module._forward_hooks, module._forward_pre_hooks]
            self._hold(module._parameters, module._buffers)
            self.where.append(module.__dict__)
            self.names.append("forward")
            self.held.append(module.__dict__.get("forward"))
            if module is not mlp and "forward" in module.__dict__:
                self.reason = f"a {type(module).__name__} in it has a forward of its own"
        for module, settings in zip(forward._modules(), forward.settings, strict=False):
            for name in settings:
                self.where.append(vars(module))
                self.names.append(name)
                self.held.append(vars(module).get(name))
        if self.reason:
            return
        groups = tuple(
            tuple(parent._modules.get(name) for name in names)
            for parent, names in (
                (attention, ("q_proj", "k_proj", "v_proj")),
                (attention, ("o_proj",)),
                (mlp, ("gate_proj", "up_proj")),
                (mlp, ("down_proj",)),
            )
        )
        self._make(layer, forward.form, groups)

    def _hold(self, *dictionaries: dict[str, Any]) -> None:
        for where in dictionaries:
            self.where += [where] * len(where)
            self.names += where.keys()
            self.held += where.values()

    def _make(self, layer: Any, form: DecoderForm, groups: tuple[tuple[Any, ...], ...]) -> None:
        weights: list[PackedWeight] = []
        given: list[list[Tensor]] = []
        for group in groups:
            storages = [packed_storage(part) for part in group]
            found = [one for one in storages if one is not None]
            of_group = biases(group) if len(found) == len(group) else None
            whole = _whole(found) if of_group is not None else None
            if of_group is None or whole is None:
                self.reason = "its linear layers are not all on packed weights that can be joined"
                return
            weights.append(whole)
            given.append(of_group)
            self.owners += [part.weight for part in group]
            self.storages += found
        self.parts = [storage.part for storage in self.storages]
        dtype, device = self.norms[0].dtype, self.norms[0].device
        tensors = [*self.norms, *(bias for of_group in given for bias in of_group)]
        if any(weight.dtype != dtype for weight in weights) or any(
            tensor.dtype != dtype or tensor.device != device for tensor in tensors
        ):
            self.reason = f"its weights are packed in {weights[0].dtype}, its norms in {dtype}"
            return
        operands = [_operand(*pair) for pair in zip(weights, given, strict=True)]
        kernels = {id(found): found for found in (_kernel(*w, dtype, device) for w in operands)}
        offer = getattr(next(iter(kernels.values())), "chain", None) if len(kernels) == 1 else None
        if offer is None:
            self.reason = "what computes its products offers no chain of them"
            return
        attention, width = layer.self_attn, self.norms[0].shape[0]
        size = attention.head_dim
        heads = attention.q_proj.out_features // size, attention.k_proj.out_features // size
        try:
            before = before_attention(dtype, device, width, size, heads, operands[0], form)
            after = after_attention(
                dtype,
                device,
                width,
                (operands[1], operands[2], operands[3]),
                layer.mlp.act_fn,
                form,
            )
        except (ProgramError, ValueError) as error:
            self.reason = str(error)
            return
        self.before, self.after = offer(before), offer(after)
        # Chains go by them; a tensor may get other memory.
        self.weights = [tensor for packed in weights for tensor in packed.tensors]
        self.places = [tensor.data_ptr() for tensor in self.weights]
        self.biases = (
            tuple(of_group for of_group in given[:1] if of_group),
            tuple(of_group for of_group in given[1:] if of_group),
        )

    def is_current(self) -> bool:
        """Return whether everything is as it was.

        By loops in C: weights that stream past leave little of Python in the caches, and what these
        few lines use of it is fetched again for each layer.
        """
        return (
            all(map(is_, map(dict.get, self.where, self.names), self.held))
            and all(map(is_, map(_HELD, self.owners), self.storages))
            and all(map(is_, map(_PART, self.storages), self.parts))
            and list(map(Tensor.data_ptr, self.weights)) == self.places
        )


def _whole(storages: list[WeightStorage]) -> PackedWeight | None:
    first = storages[0].part
    if len(storages) == 1 and first is not None:
        return first.packed
    joint = join(tuple(storages))
    return None if joint is None else joint.whole


def _operand(weight: PackedWeight, given: list[Tensor]) -> Weight:
    packed = weight.packed
    return packed, _joined(given) if given else None


def _joined(given: list[Tensor]) -> Tensor:
    return given[0] if len(given) == 1 else torch.cat(given)


def _kernel(packed: Packed, bias: Tensor | None, dtype: torch.dtype, device: torch.device) -> Any:
    x = torch.empty((1, packed.spec.columns), dtype=dtype, device=device)
    return registry().resolve(LINEAR, LinearCall(x, packed, bias).request())


def _state_of(forward: DecoderForward) -> _State:
    # From before the decisions: then a change that comes between drops them.
    cache = decision_cache()
    known = cache.get(_KEY)
    if known is None:
        known = cache.setdefault(_KEY, WeakKeyDictionary())
    state: _State | None = known.get(forward)
    if state is None or not state.is_current():
        state = known[forward] = _State(forward)
    return state


def _decoded(
    forward: DecoderForward,
    x: Tensor,
    attention_mask: Any = None,
    position_ids: Any = None,
    use_cache: Any = None,
    position_embeddings: Any = None,
    **others: Any,
) -> Tensor | None:
    """Compute a layer for one token; None, without an effect, where that is not possible."""
    form, layer = forward.form, forward.layer
    kept = others.pop(form.cache, None)
    if (
        type(x) is not Tensor
        or x.ndim != 3
        or x.shape[0] * x.shape[1] != 1
        or kept is None
        or position_embeddings is None
        or any(value is not None for value in others.values())
        or not no_active_modes()
        or torch.is_autocast_enabled(x.device.type)
    ):
        return None
    state = _state_of(forward)
    if state.before is None or state.after is None or any(state.hooks):
        return None
    attention: Any = layer.self_attn
    functions, cached = _transformers()
    # Of "eager" each model has its own, which only its code knows.
    attend = functions.get(attention.config._attn_implementation)
    if attend is None or type(kept) is not cached or kept.offloading:
        return None
    layers = kept.layers
    index = attention.layer_idx
    if index >= len(layers) or type(layers[index]) is not growing_layer():
        return None
    cache = layers[index]
    places = cache.next_places()
    if places is None:
        return None
    first, second = (tuple(map(_joined, given)) for given in state.biases)
    query = state.before(x, state.norms[0], *position_embeddings, *places, *first)
    if query is None:
        return None
    given: Any = dict(form.constants)
    if form.passed:
        passed = {
            "position_ids": position_ids,
            "use_cache": use_cache,
            form.cache: kept,
            "position_embeddings": position_embeddings,
        }
        given.update((name, passed[name]) for name in form.passed)
    keys, values = cache.take_next()
    attended, _ = attend(attention, query, keys, values, attention_mask, **given)
    attended = attended.reshape(1, 1, -1)
    out = state.after(attended, x, state.norms[1], *second)
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
