"""A function captured for one set of shapes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from torchyard import registry
from torchyard_kernels._torch_compat import TreeSpec, tree_flatten, tree_unflatten
from torchyard_kernels.graphs._errors import UncapturableError
from torchyard_kernels.graphs._faults import audited
from torchyard_kernels.graphs._record import operator_name, record, storage_of, tensors_in
from torchyard_kernels.graphs.contract import (
    GRAPH_CAPTURE,
    Captured,
    GraphRequest,
    GraphSource,
    Step,
)

__all__ = ["Bucket", "captured_bucket"]


@dataclass(frozen=True, slots=True, eq=False)
class Bucket:
    """A function, captured for the shapes of one example.

    Attributes:
        inputs: the static tensor arguments, in the order of the flattened arguments.
        captured: the replay and its outputs.
        others: the arguments other than tensors, in their order.
        taken: the structure of the arguments.
        leaves: the flattened result, with :class:`_Output` in place of each tensor.
        form: the structure of the result.
    """

    inputs: tuple[Tensor, ...]
    captured: Captured
    others: tuple[Any, ...]
    taken: TreeSpec
    leaves: tuple[Any, ...]
    form: TreeSpec

    def result(self, changed: Callable[[int, Tensor], Tensor] | None = None) -> Any:
        """Return the function's result, made of the tensors that replays write.

        Args:
            changed: returns the tensor to put in place of an output, given its index and the
                output; None: the output itself.
        """
        outputs = self.captured.outputs
        if changed is not None:
            outputs = tuple(changed(at, output) for at, output in enumerate(outputs))
        leaves = [outputs[leaf.at] if isinstance(leaf, _Output) else leaf for leaf in self.leaves]
        return tree_unflatten(leaves, self.form)


@dataclass(frozen=True, slots=True)
class _Output:
    """A placeholder for an output in the function's result: its index among the outputs."""

    at: int


def captured_bucket(
    fn: Callable[..., Any],
    example: tuple[Any, ...],
    device: torch.device,
    state: tuple[Tensor, ...],
    warmup: int,
) -> Bucket:
    """Warm up, check and capture a function.

    State is restored afterwards.

    Raises:
        UncapturableError: names the operator and the line.
    """
    leaves, spec = tree_flatten(example)
    inputs = tuple(leaf.detach().clone() for leaf in leaves if isinstance(leaf, Tensor))
    saved = [tensor.detach().clone() for tensor in state]
    flat: list[tuple[list[Any], TreeSpec]] = []

    def run() -> tuple[Tensor, ...]:
        given = iter(inputs)
        arguments = [next(given) if isinstance(leaf, Tensor) else leaf for leaf in leaves]
        results, form = tree_flatten(fn(*tree_unflatten(arguments, spec)))
        flat[:] = [(results, form)]
        return tuple(leaf for leaf in results if isinstance(leaf, Tensor))

    for _ in range(warmup):
        run()
    steps, outputs = record(run, inputs, state, _faults(device.type))
    _check_outputs(outputs, device)
    _check_gradients(steps)
    source = GraphSource(run, inputs, state, steps, outputs)
    fragile = audited(device.type) & {operator_name(step.op) for step in steps}
    chosen = registry().resolve(GRAPH_CAPTURE, GraphRequest(device.type, fragile))
    captured: Captured = chosen(source)
    with torch.no_grad():
        for tensor, before in zip(state, saved, strict=True):
            tensor.copy_(before)
    results, form = flat[0]
    indices = iter(range(len(outputs)))
    result = tuple(_Output(next(indices)) if isinstance(leaf, Tensor) else leaf for leaf in results)
    others = tuple(leaf for leaf in leaves if not isinstance(leaf, Tensor))
    return Bucket(inputs, captured, others, spec, result, form)


def _faults(device: str) -> dict[str, str]:
    """Return why a capture on this machine cannot hold operators, by their names."""
    found: dict[str, str] = {}
    without = registry().decide(GRAPH_CAPTURE, GraphRequest(device))
    for operator in sorted(audited(device)):
        decision = registry().decide(GRAPH_CAPTURE, GraphRequest(device, frozenset({operator})))
        # Where nothing captures on the device at all, that is the error.
        if decision.chosen is None and without.chosen is not None:
            (verdict,) = (c.verdict for c in decision.trace if c.name == without.name)
            found[operator] = f"{verdict.text}; {verdict.hint}"
    return found


def _check_gradients(steps: tuple[Step, ...]) -> None:
    """Refuse a function that leaves gradients in ``.grad``: replays would not change them."""
    allocated = {storage_of(tensor) for step in steps for tensor in tensors_in(step.result)}
    for tensor in tensors_in([step.args for step in steps]):
        if tensor.is_leaf and tensor.grad is not None and storage_of(tensor.grad) in allocated:
            raise UncapturableError(
                "Tensor.backward",
                "it leaves gradients in .grad, which a replay would not; return those of "
                "torch.autograd.grad",
                "a call of the function",
            )


def _check_outputs(outputs: tuple[Tensor, ...], device: torch.device) -> None:
    for tensor in outputs:
        if tensor.device.type != device.type:
            raise UncapturableError(
                "the function's result",
                f"it lies on {tensor.device}, and the graph's tensors on {device.type}",
                "its return",
            )
