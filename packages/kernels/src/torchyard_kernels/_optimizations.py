"""What ``torchyard.optimize`` may do with the kernels: packed weights, and execution graphs."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal

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

_Weights = Literal["bfloat16", "float16", "int8", "int4"] | None

# Name -> the format of weights, and whether x is rounded to 8 bits too.
_FORMATS: Final[dict[str, tuple[_Weights, Literal["int8"] | None]]] = {
    "packed": (None, None),
    "bfloat16": ("bfloat16", None),
    "int8": ("int8", None),
    "int8-dynamic": ("int8", "int8"),
    "int4": ("int4", None),
}
# Shapes of which a model's calls are captured; calls of others run as without.
_MOST_GRAPHS: Final = 8


@hookimpl
def torchyard_optimizations() -> Sequence[Optimization]:
    """Return packed weights and execution graphs."""
    return [
        Optimization(
            "weights",
            OptimizationStage.WEIGHTS,
            "weights of linear layers in packed memory, and layers in fewer calls",
            _weights,
        ),
        Optimization(
            "graphs",
            OptimizationStage.EXECUTION,
            "the model's calls replayed without Python between operators",
            _graphs,
        ),
    ]


def _weights(model: nn.Module) -> Sequence[Variant]:
    import torch
    from torch import nn

    linears = [module for module in model.modules() if isinstance(module, nn.Linear)]
    if not linears:
        raise NotApplicableError("it has no torch.nn.Linear")
    half = all(linear.weight.dtype in (torch.float16, torch.bfloat16) for linear in linears)
    return [
        Variant(name, partial(_accelerated, model, *of), lossy=of[0] is not None)
        for name, of in _FORMATS.items()
        if not (half and name == "bfloat16")
    ]


def _accelerated(
    model: nn.Module, weights: _Weights, activation: Literal["int8"] | None, keep: bool
) -> Applied:
    from torchyard_kernels import accelerate
    from torchyard_kernels.linear._weights.shared_weight import SharedWeight

    done = accelerate(
        model, weights=weights, activation=activation, keep_originals=keep, measure=False
    )
    report = done.report
    if not report.changes:
        done.undo()
        reasons = sorted({skipped.reason for skipped in report.skipped})
        raise NotApplicableError(f"nothing can be packed: {'; '.join(reasons)}")
    notes = tuple(f"{skipped.name}: left as it is: {skipped.reason}" for skipped in report.skipped)
    copies = [one.packed_copy() for one in model.parameters() if isinstance(one, SharedWeight)]
    return Applied(
        done.undo,
        report.bytes_before if keep else 0,
        held=sum(tensor.nbytes for packed in copies for tensor in packed.tensors),
        notes=notes,
    )


def _graphs(model: nn.Module) -> Sequence[Variant]:
    return [Variant("captured", lambda keep: _captured(model))]


def _captured(model: nn.Module) -> Applied:
    before = model.__dict__.get("forward")
    model.__dict__["forward"] = _Replayed(model.forward)

    def undo() -> None:
        del model.__dict__["forward"]
        if before is not None:
            model.__dict__["forward"] = before

    return Applied(undo)


class _Replayed:
    """A model's forward, captured for each of the first shapes that it is called with."""

    def __init__(self, forward: Any) -> None:
        self._forward = forward
        self._graphs: dict[Any, Any] = {}

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        import torch

        from torchyard_kernels._torch_compat import tree_flatten, tree_map_only
        from torchyard_kernels.graphs._api import capture

        leaves, structure = tree_flatten((args, kwargs))
        tensors = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
        wants_gradient = torch.is_grad_enabled() and any(t.requires_grad for t in tensors)
        if torch.compiler.is_compiling() or wants_gradient:
            return self._forward(*args, **kwargs)
        key = str(structure), tuple(map(_described, leaves))
        graph = self._graphs.get(key)
        if graph is None:
            if len(self._graphs) == _MOST_GRAPHS:
                return self._forward(*args, **kwargs)
            graph = capture(self._run, args, kwargs)
            self._graphs[key] = graph
        # The next replay overwrites what this one returns.
        return tree_map_only(torch.Tensor, torch.clone, graph(args, kwargs))

    def _run(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return self._forward(*args, **kwargs)


def _described(leaf: Any) -> Any:
    import torch

    if isinstance(leaf, torch.Tensor):
        return leaf.shape, leaf.dtype, leaf.device, leaf.stride()
    return repr(leaf)
