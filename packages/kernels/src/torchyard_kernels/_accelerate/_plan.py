"""What is to be put on packed weights in a model, and what is multiplied at once."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field

import torch

from torchyard_kernels._accelerate._find import (
    GATED,
    PROJECTIONS,
    gated_parts,
    projections_parts,
    reason_against,
)
from torchyard_kernels._accelerate._report import AccelerateError, Skipped
from torchyard_kernels._accelerate.decoder._form import DecoderForm, decoder_form
from torchyard_kernels._accelerate.decoder._forward import DecoderForward
from torchyard_kernels._accelerate.gated._forward import GatedForward
from torchyard_kernels.linear._weights.packed_tensor import PackedTensor
from torchyard_kernels.linear._weights.shared_weight import SharedWeight
from torchyard_kernels.linear._weights.storage import Joint

__all__ = ["Group", "Holder", "Plan", "of_transformers"]

_OURS = (PackedTensor, SharedWeight)


@dataclass(frozen=True, slots=True)
class Holder:
    """A module, and under what name it has a parameter."""

    name: str
    module: torch.nn.Module
    key: str


@dataclass(frozen=True, slots=True)
class Group:
    """Layers whose rows become one weight.

    Attributes:
        name, module: what they are in.
        parts: (q, k, v), or (gate, up).
        names: of the parts in the module.
    """

    name: str
    module: torch.nn.Module
    parts: tuple[torch.nn.Linear, ...]
    names: tuple[str, ...]


@dataclass(slots=True)
class Plan:
    """What is to be done to a model.

    Attributes:
        layers: linear layers by name, each once.
        gated, projections: what is multiplied at once.
        decoders: (name, layer, form) of decoders' layers.
        skipped: what stays. unused: what a module will not be part of, and why.
        holders: id of a parameter -> who has it.
    """

    layers: dict[str, torch.nn.Linear] = field(default_factory=dict)
    gated: list[Group] = field(default_factory=list)
    projections: list[Group] = field(default_factory=list)
    decoders: list[tuple[str, torch.nn.Module, DecoderForm]] = field(default_factory=list)
    skipped: list[Skipped] = field(default_factory=list)
    unused: list[Skipped] = field(default_factory=list)
    holders: dict[int, list[Holder]] = field(default_factory=dict)

    @classmethod
    def of(cls, model: torch.nn.Module, skip: tuple[str, ...], fuse: bool, panel: int) -> Plan:
        """Return the plan for a model, which is not touched.

        Args:
            model: what is to be accelerated.
            skip: names of modules that stay.
            fuse: whether layers are multiplied at once.
            panel: rows of a panel of the format.

        Raises:
            AccelerateError: the model was accelerated already.
        """
        self = cls()
        for name, module in model.named_modules():
            _check_untouched(name, module)
            for key, parameter in module._parameters.items():
                if parameter is not None:
                    holder = Holder(name, module, key)
                    self.holders.setdefault(id(parameter), []).append(holder)
        self._find_layers(model, skip)
        if fuse:
            self._find_groups(model, panel)
            if of_transformers(model):
                self._find_decoders(model)
        return self

    def _find_layers(self, model: torch.nn.Module, skip: tuple[str, ...]) -> None:
        for name, module in model.named_modules():
            if not isinstance(module, torch.nn.Linear):
                continue
            named = any(f"{name}.".startswith(f"{stays}.") for stays in skip)
            reason = "skip names it" if named else reason_against(module)
            if reason:
                self.skipped.append(Skipped(name, reason))
            else:
                self.layers[name] = module
        taken = set(self.layers)
        for name, layer in list(self.layers.items()):
            others = [one for one in self.holders[id(layer.weight)] if one.module is not layer]
            stays = [
                one.name
                for one in others
                if isinstance(one.module, torch.nn.Linear) and one.name not in taken
            ]
            apart = not all(isinstance(one.module, torch.nn.Linear) for one in others)
            reason = f"its weight is also that of {', '.join(stays)}, which stays" if stays else ""
            if not reason and apart and layer.weight.is_inference():
                reason = "its weight is shared, and an inference tensor, which has no version"
            if reason:
                self.skipped.append(Skipped(name, reason))
                del self.layers[name]

    def _find_groups(self, model: torch.nn.Module, panel: int) -> None:
        packed = set(map(id, self.layers.values()))
        for name, module in model.named_modules():
            for find, names, into in (
                (gated_parts, GATED, self.gated),
                (projections_parts, PROJECTIONS, self.projections),
            ):
                if not set(names) <= module._modules.keys():
                    continue
                parts = find(module)
                if isinstance(parts, str):
                    if parts:
                        self.unused.append(Skipped(name, f"not multiplied at once: {parts}"))
                    continue
                at_once = parts[:2] if find is gated_parts else parts
                reason = ""
                if any(id(part) not in packed for part in parts):
                    reason = "a part of it stays as it is"
                elif any(len(self.holders[id(part.weight)]) > 1 for part in at_once):
                    reason = "a weight in it is shared with something else"
                elif not Joint.fits(tuple(part.out_features for part in at_once), panel):
                    reason = f"its layers' outputs are no multiples of {panel}"
                if reason:
                    self.unused.append(Skipped(name, f"not multiplied at once: {reason}"))
                else:
                    into.append(Group(name, module, at_once, names[: len(at_once)]))

    def _find_decoders(self, model: torch.nn.Module) -> None:
        fused = {id(group.module) for group in (*self.gated, *self.projections)}
        for name, module in model.named_modules():
            form = decoder_form(module)
            if isinstance(form, DecoderForm):
                if {id(module.mlp), id(module.self_attn)} <= fused:
                    self.decoders.append((name, module, form))
                    continue
                form = "a part of it is not multiplied at once"
            if form:
                self.unused.append(Skipped(name, f"not decoded in few calls: {form}"))


def of_transformers(model: torch.nn.Module) -> bool:
    """Return whether a model is one of transformers."""
    transformers = sys.modules.get("transformers")
    return transformers is not None and isinstance(model, transformers.PreTrainedModel)


def _check_untouched(name: str, module: torch.nn.Module) -> None:
    ours = isinstance(vars(module).get("forward"), (GatedForward, DecoderForward))
    if ours or any(isinstance(one, _OURS) for one in module._parameters.values()):
        raise AccelerateError(
            f"accelerate: model: {name or 'it'} was accelerated already; undo() that first"
        )
