"""What ``torchyard.optimize`` may do with attention: give it to a model of transformers."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from torchyard import hookimpl
from torchyard.optimization import (
    Applied,
    NotApplicableError,
    Optimization,
    OptimizationStage,
    Variant,
)

if TYPE_CHECKING:
    from torch import nn

__all__ = ["torchyard_optimizations"]

_NAME: Final = "torchyard"


@hookimpl
def torchyard_optimizations() -> Sequence[Optimization]:
    """Return this package's attention, by transformers' interface."""
    return [
        Optimization(
            "attention",
            OptimizationStage.ATTENTION,
            "torchyard's attention by transformers' attention interface",
            _variants,
        )
    ]


def _variants(model: nn.Module) -> Sequence[Variant]:
    transformers = sys.modules.get("transformers")
    if transformers is None or not isinstance(model, transformers.PreTrainedModel):
        raise NotApplicableError("it is no model of transformers")
    if not hasattr(model, "set_attn_implementation"):
        raise NotApplicableError("this transformers cannot change a model's attention")
    from torchyard_attention.transformers._interface import calls_interface

    for module in model.modules():
        if isinstance(module, transformers.PreTrainedModel) and not calls_interface(module):
            raise NotApplicableError(f"{type(module).__name__} computes attention itself")
    return [Variant(_NAME, lambda keep: _given(model, transformers.PreTrainedModel))]


def _given(model: Any, kind: Any) -> Applied:
    from torchyard_attention.transformers._register import register

    register(_NAME)
    configs = {id(one.config): one.config for one in model.modules() if isinstance(one, kind)}
    found = [inner for config in configs.values() for inner in _inside(config)]
    before = [(config, dict(vars(config))) for config in found]
    model.set_attn_implementation(_NAME)
    changed = [
        (
            config,
            {
                key: attributes.get(key)
                for key in attributes
                if vars(config)[key] is not attributes[key]
            },
        )
        for config, attributes in before
    ]
    if not any(attributes for _, attributes in changed):
        raise NotApplicableError(
            "it does not let its attention be changed, or has this one already"
        )

    def undo() -> None:
        for config, attributes in changed:
            vars(config).update(attributes)

    return Applied(undo)


def _inside(config: Any) -> Iterator[Any]:
    """Return a configuration and those that it consists of."""
    yield config
    for name in getattr(config, "sub_configs", ()):
        if (inner := getattr(config, name, None)) is not None:
            yield from _inside(inner)
