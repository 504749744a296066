"""What ``torchyard.optimize`` may do with this package: reroute calls, and compile."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

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


@hookimpl
def torchyard_optimizations() -> Sequence[Optimization]:
    """Return torch's functions by the registry's choice, and compilation."""
    return [
        Optimization(
            "reroute",
            OptimizationStage.FUNCTIONS,
            "torch's functions by the implementations that the registry chooses",
            lambda model: [Variant("functions", lambda keep: _rerouted(model))],
        ),
        Optimization(
            "compile",
            OptimizationStage.COMPILATION,
            "torch.compile, by repeated blocks or of the whole model",
            _compilations,
        ),
    ]


def _rerouted(model: nn.Module) -> Applied:
    from torchyard_compile import reroute

    return Applied(reroute(model).undo)


def _compilations(model: nn.Module) -> Sequence[Variant]:
    return [
        Variant("regions", lambda keep: _regions(model)),
        Variant("whole", lambda keep: _whole(model)),
        Variant("fused", lambda keep: _fused(model)),
    ]


def _regions(model: nn.Module) -> Applied:
    from torchyard_compile import compile_regions
    from torchyard_compile._search import repeated_blocks

    blocks = [block for found in repeated_blocks(model, least=2).values() for _, block in found]
    if not blocks:
        raise NotApplicableError("no block of it repeats")
    restore = [_restoring(block, "forward") for block in blocks]
    restore.append(_restoring(model, "report"))
    # A call of another shape may need what the report warns of; it is no error in use.
    compile_regions(model, on_fallback="warn")

    def undo() -> None:
        for one in restore:
            one()

    return Applied(undo)


def _whole(model: nn.Module, backend: str | Callable[..., Any] = "inductor") -> Applied:
    import torch

    from torchyard_compile._dispatch_modes import eager_in_modes

    undo = _restoring(model, "forward")
    compiler: Any = torch.compile
    # Each trial compiles the same functions: together they would reach torch's limit, behind which
    # it runs them uncompiled.
    known = inspect.signature(compiler).parameters
    alone = {"isolate_recompiles": True} if "isolate_recompiles" in known else {}
    model.__dict__["forward"] = eager_in_modes(compiler(model.forward, backend=backend, **alone))
    return Applied(undo)


def _fused(model: nn.Module) -> Applied:
    from torchyard_compile import GraphReroute, LinearFusion

    try:
        fusion = LinearFusion()
    except ModuleNotFoundError as error:
        raise NotApplicableError(str(error)) from error
    return _whole(model, GraphReroute(fusion))


def _restoring(module: nn.Module, name: str) -> Callable[[], None]:
    """Return what gives a module the attribute back that it has now, or takes it away."""
    attributes: dict[str, Any] = module.__dict__
    if name in attributes:
        before = attributes[name]
        return lambda: attributes.update({name: before})
    return lambda: attributes.pop(name, None) and None
