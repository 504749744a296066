"""Which modules are replaced by what, and the way there and back."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any, Final

import torch
from torch import Tensor

from torchyard_kernels._accelerate._cache import grow_in_place
from torchyard_kernels._accelerate._decoded import DecoderStep, derive, forget, stepping
from torchyard_kernels._accelerate._decoder import DecoderForm, decoder_form
from torchyard_kernels._accelerate._find import gated_parts, projections_parts, reason_against
from torchyard_kernels._accelerate._gain import Pair
from torchyard_kernels._accelerate._modules import (
    GatedMlp,
    PackedLinear,
    Projection,
    Projections,
)
from torchyard_kernels._accelerate._report import AccelerateError, Change, Skipped
from torchyard_kernels._linear._packed_weight import PackedWeight

__all__ = ["Made", "Plan", "Replacer"]

_OURS: Final = (PackedLinear, GatedMlp, Projection)
_Linears = tuple[torch.nn.Linear, ...]


class Plan:
    """What is to be replaced in a model.

    Attributes:
        gated: (name, module, (gate, up, down)).
        projections: (name, module, (q, k, v)).
        decoders: (name, layer, form), where all that is in the layer is replaced.
        single: (name, layer), each layer once, however often it is in the model.
        skipped: what stays.
        places: id of a layer -> (parent, name in it), everywhere it is.
    """

    def __init__(self, model: torch.nn.Module, skip: tuple[str, ...], fuse: bool) -> None:
        self.gated: list[tuple[str, torch.nn.Module, _Linears]] = []
        self.projections: list[tuple[str, torch.nn.Module, _Linears]] = []
        self.decoders: list[tuple[str, torch.nn.Module, DecoderForm]] = []
        self.single: list[tuple[str, torch.nn.Linear]] = []
        self.skipped: list[Skipped] = []
        self.places: dict[int, list[tuple[torch.nn.Module, str]]] = {}
        self.tied = _tied(model)
        taken: set[int] = set()
        for name, module in model.named_modules():
            if isinstance(module, (*_OURS, DecoderStep)):
                raise AccelerateError(
                    f"accelerate: model: {name or 'it'} was accelerated already; undo() that first"
                )
            for child_name, child in module._modules.items():
                if child is not None:
                    self.places.setdefault(id(child), []).append((module, child_name))
        for name, module in model.named_modules():
            if _within(name, skip):
                if isinstance(module, torch.nn.Linear):
                    self.skipped.append(Skipped(name, "skip names it"))
                continue
            fusible = fuse and id(module) in self.places and not _inner(name, skip)
            if fusible and _of_transformers(model) and (form := decoder_form(module)):
                self.decoders.append((name, module, form))
            if fusible and (parts := gated_parts(module)):
                self.gated.append((name, module, parts))
                taken.update(map(id, parts))
            if fusible and (parts := projections_parts(module)):
                self.projections.append((name, module, parts))
                taken.update(map(id, parts))
            if isinstance(module, torch.nn.Linear) and id(module) not in taken:
                reason = reason_against(module)
                if id(module) not in self.places:
                    reason = "it is the model itself: pass it inside of another module"
                if reason:
                    self.skipped.append(Skipped(name, reason))
                else:
                    self.single.append((name, module))
        fused = {id(module) for _, module, _ in (*self.gated, *self.projections)}
        self.decoders = [
            (name, layer, form)
            for name, layer, form in self.decoders
            if {id(layer.mlp), id(layer.self_attn)} <= fused
        ]


class Made:
    """The replacements of a plan.

    Attributes:
        changes: of the report.
        pairs: to be timed.
        modules: original -> replacement.
        decoders: layer -> form.
    """

    def __init__(self, plan: Plan) -> None:
        self.changes: list[Change] = []
        self.pairs: list[Pair] = []
        self.modules: list[tuple[torch.nn.Module, torch.nn.Module]] = []
        self.decoders: list[tuple[torch.nn.Module, DecoderForm]] = []
        self._places = plan.places

    def put(self, model: torch.nn.Module, *, cache: bool, keep: bool) -> Callable[[], None] | None:
        """Put the replacements in their places; return the way back."""
        done: list[tuple[torch.nn.Module, str, torch.nn.Module, torch.nn.Module]] = []
        for original, replacement in self.modules:
            replacement.train(original.training)
            for parent, name in self._places[id(original)]:
                parent._modules[name] = replacement
                done.append((parent, name, original, replacement))
        classes: list[tuple[torch.nn.Module, Any]] = [
            (layer, type(layer)) for layer, _ in self.decoders
        ]
        for layer, form in self.decoders:
            derive(layer, form)
        hook = None
        if cache and _of_transformers(model):
            hook = model.register_forward_pre_hook(grow_in_place, with_kwargs=True)
        if not keep:
            return None

        def undo() -> None:
            for parent, name, _, replacement in done:
                if parent._modules.get(name) is not replacement:
                    raise AccelerateError(
                        f"accelerate: undo: {name} of a {type(parent).__name__} is no longer what "
                        "accelerate put there; nothing was put back"
                    )
            for layer, own in classes:
                if type(layer) is not stepping(own):
                    raise AccelerateError(
                        f"accelerate: undo: a {type(layer).__name__} is no longer of the class "
                        "that accelerate gave it; nothing was put back"
                    )
            for parent, name, original, _ in done:
                parent._modules[name] = original
            for layer, own in classes:
                layer.__class__ = own
                forget(layer)
            if hook is not None:
                hook.remove()

        return undo


class Replacer:
    """Makes replacements with weights of one kind.

    Args:
        weights: as of ``accelerate``.
        options: of the format.
    """

    def __init__(self, weights: str | None, options: dict[str, int]) -> None:
        self._rounded = weights if weights in ("int8", "int4") else None
        self._dtype = None if weights is None or self._rounded else getattr(torch, weights)
        self._options = options

    def make(self, plan: Plan) -> Made:
        """Return the replacements of a plan; the model is not touched."""
        made = Made(plan)
        for name, module, form in plan.decoders:
            made.changes.append(Change(name, "layer, around attention at once for one token", 0, 0))
            made.decoders.append((module, form))
        for name, module, (gate, up, down) in plan.gated:
            both = self._stacked((gate, up))
            act: Any = module.act_fn
            mlp = GatedMlp(both, self._layer(down), act)
            self._add(made, plan, name, "gated layer, gate and up at once", module, mlp)
            made.pairs.append((name, module, mlp, *_input_of(gate)))
        for name, module, parts in plan.projections:
            shared = Projections(
                (whole := self._stacked(parts)).packed,
                whole.bias,
                tuple(part.out_features for part in parts),
            )
            first = 0
            for index, (part, own) in enumerate(zip(parts, _names(module, parts), strict=True)):
                alone = PackedLinear(_rows(whole.packed, first, part.out_features), part.bias)
                first += part.out_features
                projection = Projection(shared, index, alone)
                self._add(
                    made, plan, f"{name}.{own}", "projection, three at once", part, projection
                )
        for name, layer in plan.single:
            packed = self._layer(layer)
            self._add(made, plan, name, "linear layer", layer, packed)
            made.pairs.append((name, layer, packed, *_input_of(layer)))
        return made

    def _add(
        self,
        made: Made,
        plan: Plan,
        name: str,
        kind: str,
        original: torch.nn.Module,
        replacement: torch.nn.Module,
    ) -> None:
        before = sum(
            layer.weight.nbytes
            for layer in original.modules()
            if isinstance(layer, torch.nn.Linear)
        )
        after = sum(tensor.nbytes for tensor in _packed_tensors(replacement))
        ties = sorted(
            {
                other
                for layer in original.modules()
                if isinstance(layer, torch.nn.Linear)
                for other in plan.tied.get(id(layer.weight), ())
                if not f"{other}.".startswith(f"{name}.")
            }
        )
        note = f"tied to {', '.join(ties)}, which keeps the original" if ties else ""
        made.changes.append(Change(name, kind, before, after, note))
        made.modules.append((original, replacement))

    def _layer(self, layer: torch.nn.Linear) -> PackedLinear:
        return PackedLinear(self._packed(layer.weight.detach()), layer.bias)

    def _stacked(self, layers: _Linears) -> PackedLinear:
        weight = torch.cat([layer.weight.detach() for layer in layers])
        biases = _biases(layers)
        return PackedLinear(self._packed(weight), torch.cat(biases) if biases else None)

    def _packed(self, weight: Tensor) -> PackedWeight:
        if self._rounded:
            return PackedWeight(weight, self._rounded, **self._options)
        return PackedWeight(weight if self._dtype is None else weight.to(self._dtype))


def _input_of(layer: torch.nn.Linear) -> tuple[int, torch.dtype, torch.device]:
    return layer.in_features, layer.weight.dtype, layer.weight.device


def _biases(layers: _Linears) -> list[Tensor]:
    given: list[Tensor | None] = [layer.bias for layer in layers]
    return [bias.detach() for bias in given if bias is not None]


def _rows(packed: PackedWeight, first: int, count: int) -> PackedWeight:
    """Return rows of a packed weight as one of their own, over the same memory."""
    panel = packed.tensors[0].shape[2]
    part = slice(first // panel, (first + count) // panel)
    spec = packed.spec_text.replace(f" {packed.shape[0]}x", f" {count}x", 1)
    state = {name: packed.get_buffer(name)[part] for name in packed.names}
    state["spec"] = torch.tensor(list(spec.encode()), dtype=torch.uint8)
    return PackedWeight.from_state(state)


def _packed_tensors(module: torch.nn.Module) -> Iterator[Tensor]:
    for part in module.modules():
        if isinstance(part, PackedWeight):
            yield from part.tensors


def _names(module: torch.nn.Module, parts: _Linears) -> list[str]:
    return [name for part in parts for name, child in module._modules.items() if child is part]


def _tied(model: torch.nn.Module) -> dict[int, list[str]]:
    """Return id of a parameter -> names of the modules that hold it, where there are several."""
    holders: dict[int, list[str]] = {}
    for name, module in model.named_modules():
        for parameter in module._parameters.values():
            if parameter is not None:
                holders.setdefault(id(parameter), []).append(name)
    return {key: names for key, names in holders.items() if len(names) > 1}


def _within(name: str, skip: tuple[str, ...]) -> bool:
    return any(f"{name}.".startswith(f"{stays}.") for stays in skip)


def _inner(name: str, skip: tuple[str, ...]) -> bool:
    return any(stays.startswith(f"{name}.") for stays in skip)


def _of_transformers(model: torch.nn.Module) -> bool:
    transformers = sys.modules.get("transformers")
    return transformers is not None and isinstance(model, transformers.PreTrainedModel)
