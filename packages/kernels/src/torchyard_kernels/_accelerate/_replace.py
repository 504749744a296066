"""A plan's weights packed, put into the model, and taken out again."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from torchyard_kernels._accelerate._gain import Pair
from torchyard_kernels._accelerate._plan import Holder, Plan, of_transformers
from torchyard_kernels._accelerate._report import Change, Skipped
from torchyard_kernels._accelerate._undo import Undo
from torchyard_kernels._accelerate.decoder._cache import grow_in_place, reason_against_growing
from torchyard_kernels._accelerate.decoder._forward import DecoderForward
from torchyard_kernels._accelerate.gated._forward import GatedForward
from torchyard_kernels.linear._weights.packed_tensor import PackedTensor, packed_tensor
from torchyard_kernels.linear._weights.packed_weight import PackedWeight
from torchyard_kernels.linear._weights.shared_weight import SharedWeight
from torchyard_kernels.linear._weights.storage import Joint, Part, WeightStorage

__all__ = ["Made", "Packing", "make"]


@dataclass(frozen=True)
class Packing:
    """How weights are packed.

    Attributes:
        rounded: ``int8`` or ``int4``; None: as they are.
        dtype: that they are converted to before; None: their own.
        options: of the format.
    """

    rounded: str | None
    dtype: torch.dtype | None
    options: tuple[tuple[str, int], ...]

    def __call__(self, weight: Tensor) -> PackedWeight:
        """Return a packed copy of [N, K]."""
        if self.rounded:
            return PackedWeight(weight, self.rounded, **dict(self.options))
        return PackedWeight(weight if self.dtype is None else weight.to(self.dtype))


@dataclass(slots=True)
class Made:
    """A plan's weights, packed; the model is not touched.

    Attributes:
        plan: what is to be done.
        weights: id of a parameter -> (the parameter, what takes its place).
        changes: of the report. pairs: to be timed.
    """

    plan: Plan
    weights: dict[int, tuple[Tensor, Tensor]] = field(default_factory=dict)
    changes: list[Change] = field(default_factory=list)
    pairs: list[Pair] = field(default_factory=list)

    def put(self, model: Any, *, cache: bool, keep: bool) -> Undo | None:
        """Put the weights in their places; return the way back."""
        undo = Undo()
        for key, (original, placed) in self.weights.items():
            for holder in self.plan.holders[key]:
                module: Any = holder.module
                module._parameters[holder.key] = placed
                undo.parameters.append((holder, original, placed))
                if isinstance(placed, PackedTensor):
                    hook = module.register_state_dict_post_hook(_unpack_state)
                    undo.handles.append(hook)
        for group in self.plan.gated:
            undo.put_forward(group.module, GatedForward(group.module))
        steps: list[Change] = []
        for name, layer, form in self.plan.decoders:
            forward = DecoderForward(layer, form)
            undo.put_forward(layer, forward)
            if reason := forward.reason_against():
                self.plan.unused.append(Skipped(name, f"not decoded in few calls: {reason}"))
            else:
                kind = "layer, around attention at once for one token"
                steps.append(Change(name, kind, 0, 0))
        self.changes[:0] = steps
        names = tuple(holder.name for holder in self._packed_holders())
        undo.handles.append(model.register_load_state_dict_post_hook(_Loaded(names)))
        if cache and of_transformers(model):
            hook = model.register_forward_pre_hook(grow_in_place, with_kwargs=True)
            undo.handles.append(hook)
            if reason := reason_against_growing(model):
                self.plan.unused.append(Skipped("", f"the cache does not grow in place: {reason}"))
        return undo if keep else None

    def _packed_holders(self) -> Iterator[Holder]:
        for key, (_, placed) in self.weights.items():
            if isinstance(placed, PackedTensor):
                yield from self.plan.holders[key]


def make(plan: Plan, packing: Packing) -> Made:
    """Pack a plan's weights.

    Raises:
        TypeError, ValueError: a weight cannot be packed so.
    """
    made = Made(plan)
    # What is made here is written later, perhaps where gradients are recorded.
    with torch.no_grad(), torch.inference_mode(False):
        done: set[int] = set()
        for group in plan.gated:
            _add_group(made, group.parts, packing)
            down: Any = group.module._modules["down_proj"]
            _add_layer(made, down, packing)
            parts = *group.parts, down
            done.update(map(id, parts))
            made.changes.append(
                _change(made, group.name, "gated layer, gate and up at once", *parts)
            )
        for group in plan.projections:
            _add_group(made, group.parts, packing)
            done.update(map(id, group.parts))
            made.changes += [
                _change(made, f"{group.name}.{own}", "projection, three at once", part)
                for own, part in zip(group.names, group.parts, strict=True)
            ]
        for name, layer in plan.layers.items():
            _add_layer(made, layer, packing)
            if id(layer) not in done:
                made.changes.append(_change(made, name, "linear layer", layer))
            before, after = made.weights[id(layer.weight)]
            bias = layer.bias
            made.pairs.append(
                (
                    name,
                    functools.partial(torch.nn.functional.linear, weight=before, bias=bias),
                    functools.partial(torch.nn.functional.linear, weight=after, bias=bias),
                    layer.in_features,
                    layer.weight.dtype,
                    layer.weight.device,
                )
            )
    return made


def _add_group(made: Made, layers: tuple[torch.nn.Linear, ...], packing: Packing) -> None:
    joint = Joint(
        packing(torch.cat([layer.weight.detach() for layer in layers])),
        tuple(layer.out_features for layer in layers),
    )
    for layer, part in zip(layers, joint.parts, strict=True):
        made.weights[id(layer.weight)] = layer.weight, _placed(part, layer.weight)


def _add_layer(made: Made, layer: torch.nn.Linear, packing: Packing) -> None:
    weight = layer.weight
    if id(weight) in made.weights:
        return
    holders = made.plan.holders[id(weight)]
    if all(isinstance(one.module, torch.nn.Linear) for one in holders):
        made.weights[id(weight)] = weight, _placed(Part(packing(weight.detach())), weight)
        return
    shared = SharedWeight.of(weight.detach(), packing, weight.requires_grad)
    shared.packed_copy()
    made.weights[id(weight)] = weight, shared


def _placed(part: Part, weight: Tensor) -> PackedTensor:
    return packed_tensor(WeightStorage(part), weight.dtype)


def _change(made: Made, name: str, kind: str, *layers: torch.nn.Linear) -> Change:
    before = after = 0
    ties: set[str] = set()
    for layer in layers:
        _, placed = made.weights[id(layer.weight)]
        before += layer.weight.nbytes
        if isinstance(placed, SharedWeight):
            others = made.plan.holders[id(layer.weight)]
            ties.update(one.name for one in others if one.module is not layer)
            packed = placed.packed_copy()
        else:
            assert isinstance(placed, PackedTensor)
            packed = placed.packed_weight
        after += sum(tensor.nbytes for tensor in packed.tensors)
    note = f"tied to {', '.join(sorted(ties))}, which keeps the original" if ties else ""
    return Change(name, kind, before, after, note)


def _unpack_state(
    module: torch.nn.Module, state: dict[str, Any], prefix: str, metadata: object
) -> None:
    """Hold plain numbers in a state, as the module had them: what anybody reads and saves."""
    own: dict[str, Any] = dict(module._parameters)
    for key, parameter in own.items():
        value = state.get(prefix + key)
        # With keep_vars=True it is the parameter that is asked for.
        if isinstance(value, PackedTensor) and value is not parameter:
            state[prefix + key] = value.unpack()


class _Loaded:
    """Says after ``load_state_dict(assign=True)`` that plain tensors took weights' places."""

    def __init__(self, names: tuple[str, ...]) -> None:
        self.names = names

    def __call__(self, module: torch.nn.Module, incompatible: object) -> None:
        modules = dict(module.named_modules())
        plain = [
            name
            for name in self.names
            if type(getattr(modules.get(name), "weight", None)) is torch.nn.Parameter
        ]
        if plain:
            warnings.warn(
                f"accelerate: load_state_dict(assign=True) put plain tensors in the place of "
                f"{len(plain)} packed weights, such as {plain[0]}'s; the model computes with them "
                f"as stock torch does. To pack them, undo() and accelerate() again, or load "
                f"without assign=True",
                stacklevel=3,
            )
