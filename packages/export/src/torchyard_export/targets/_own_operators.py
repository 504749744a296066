"""Operators of this tree, which other runtimes do not have."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Final

from torch.export import ExportedProgram

from torchyard_export.contract import TargetError

__all__ = ["check_own_operators"]

# Namespace -> what to do without its operators.
_REMEDIES: Final = {
    "torchyard_attention": "use torch.nn.functional.scaled_dot_product_attention in the model",
    "torchyard_kernels": "export the model as it was before its weights were packed, and quantise "
    "what the target makes with the target's own tools",
}


def check_own_operators(program: ExportedProgram, known: Collection[Any], form: str) -> None:
    """Refuse a program that calls operators of this tree which a form has no word for.

    Args:
        program: what is to be lowered.
        known: the operators that the target translates.
        form: its name for people.

    Raises:
        TargetError: names the operator and what to do without it.
    """
    for node in program.graph.nodes:
        space, _, name = str(node.target).partition(".")
        if node.op == "call_function" and space in _REMEDIES and node.target not in known:
            raise TargetError(
                f"expected operators that {form} has, got {space}::{name}; {_REMEDIES[space]}"
            )
