"""What is public is said once: in the sorted ``__all__`` of a public module."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.architecture.tree import module_name, parsed, sources

_PUBLIC = tuple(
    path
    for path in sources()
    if not any(part.startswith("_") for part in module_name(path).split("."))
)


def _defined(tree: ast.Module) -> set[str]:
    """Return the public names that a module itself defines; what it imports is not its own."""
    names: set[str] = set()
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Assign):
            names |= {name.id for name in node.targets if isinstance(name, ast.Name)}
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            names.add(node.target.id)
    # TYPE_CHECKING stands for typing's constant where importing typing would cost too much.
    return {name for name in names if not name.startswith("_")} - {"TYPE_CHECKING"}


def _listed(tree: ast.Module) -> list[str] | None:
    for node in tree.body:
        target = node.targets[0] if isinstance(node, ast.Assign) else getattr(node, "target", None)
        if isinstance(target, ast.Name) and target.id == "__all__":
            assert isinstance(node, ast.Assign | ast.AnnAssign)
            assert node.value is not None
            return list(ast.literal_eval(node.value))
    return None


def _order(name: str) -> tuple[int, str]:
    """Sort as ruff's RUF022 does: constants, classes, everything else."""
    kind = 0 if name.isupper() and len(name) > 1 else 1 if name[:1].isupper() else 2
    return kind, name


@pytest.mark.parametrize("path", _PUBLIC, ids=module_name)
def test_public_names_are_in_a_sorted_all(path: Path) -> None:
    listed = _listed(parsed(path))
    assert listed is not None, f"{path}: a public module needs an __all__"
    assert listed == sorted(set(listed), key=_order), f"{path}: __all__ is not sorted"
    missing = _defined(parsed(path)) - set(listed)
    assert not missing, f"{path}: public names that __all__ lacks: {sorted(missing)}"
