"""Names of known mistakes: each is made on purpose, and its results are compared."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.export import ExportedProgram

from torchyard_export._audit.parity import compare
from torchyard_export._audit.reference import Case
from torchyard_export._finding import Finding, FindingKind
from torchyard_export._torch_compat import pytree
from torchyard_export._tree import flatten

_GRU = torch.ops.torchyard_export.gru.default


def gru_suspect(
    program: ExportedProgram, name: str
) -> Callable[[Case, Sequence[Any]], Finding | None] | None:
    """Return what recognises a GRU whose reset gate is applied before the recurrent matrix.

    None where the program has no GRU.
    """
    if not any(node.target is _GRU for node in program.graph.nodes):
        return None

    def suspect(case: Case, got: Sequence[Any]) -> Finding | None:
        mistaken = _run(program, case)
        if mistaken is None:
            return None
        # In the same precision as the program: what matters is which of two formulas it followed.
        wrong = Case(
            *(case.sizes, case.arguments),
            [(path, leaf) for (path, _), leaf in zip(case.outputs, mistaken, strict=True)],
            mistaken,
            [bound * 16 for bound in case.bounds],
            case.form,
        )
        if compare(wrong, got).wrong:
            return None
        sizes = ", ".join(f"{key}={size}" for key, size in case.sizes.items())
        text = (
            f"{name}: at {sizes or 'the example'}: a GRU resets its state before the recurrent "
            "matrix; nn.GRU resets behind it"
        )
        return Finding(FindingKind.GRU_RESET_ORDER, text)

    return suspect


class _Mistaken(torch.fx.Interpreter):
    def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
        return (
            _reset_before(*args) if target is _GRU else super().call_function(target, args, kwargs)
        )


@torch.no_grad()
def _run(program: ExportedProgram, case: Case) -> list[Any] | None:
    leaves = [leaf for _, leaf in flatten(case.arguments)]
    module = program.module()
    assert isinstance(module, torch.fx.GraphModule)
    try:
        return list(pytree.tree_leaves(_Mistaken(module).run(*leaves)))
    except (RuntimeError, TypeError, ValueError):
        # A case that this way of running a program does not take gets no other name.
        return None


def _reset_before(
    input: Tensor,
    lengths: Tensor | None,
    h0: Tensor,
    weights: Sequence[Tensor],
    biases: bool,
    layers: int,
    bidirectional: bool,
) -> tuple[Tensor, Tensor]:
    each = 4 if biases else 2
    directions = 2 if bidirectional else 1
    finals = []
    current = input
    if lengths is None:
        lengths = torch.full((input.shape[1],), input.shape[0])
    lengths = lengths.to(input.device)
    for layer in range(layers):
        outputs = []
        for direction in range(directions):
            row = layer * directions + direction
            own = list(weights[row * each : (row + 1) * each])
            steps = range(current.shape[0])
            state, sequence = h0[row], [current.new_zeros(0)] * current.shape[0]
            for step in reversed(steps) if direction else steps:
                after = _cell(current[step], state, own, biases)
                inside = (step < lengths)[:, None]
                state = torch.where(inside, after, state)
                sequence[step] = torch.where(inside, after, 0)
            outputs.append(torch.stack(sequence))
            finals.append(state)
        current = torch.cat(outputs, -1)
    return current, torch.stack(finals)


def _cell(x: Tensor, h: Tensor, weights: Sequence[Tensor], biases: bool) -> Tensor:
    w, u = weights[0], weights[1]
    b, c = (weights[2], weights[3]) if biases else (w.new_zeros(len(w)), w.new_zeros(len(w)))
    reset_x, update_x, new_x = (x @ w.T + b).chunk(3, -1)
    size = h.shape[-1]
    reset_h, update_h = (h @ u[: 2 * size].T + c[: 2 * size]).chunk(2, -1)
    reset, update = torch.sigmoid(reset_x + reset_h), torch.sigmoid(update_x + update_h)
    new = torch.tanh(new_x + (reset * h) @ u[2 * size :].T + c[2 * size :])
    return (1 - update) * new + update * h
