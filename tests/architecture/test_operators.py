"""Ops are registered in one way, by which graphs that torch keeps know what their ops are."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.architecture.tree import module_name, parsed, sources

_CORE = "torchyard"
_REGISTRY = "torchyard._ops.operators"
_REGISTERING = {"Library", "custom_op", "triton_op"}
# Module -> why it registers past the registry.
_PAST = {
    "torchyard_collectives._torch_compat": "removes such a library's kernels",
    "torchyard_collectives.flight._record.intercept": "notes the calls of torch's own ops",
    "torchyard_export._ops": "is in saved programs alone, whose names last",
    "torchyard_mps.operators._registration": "computes torch's own ops where a device lacks them",
}


def _registers(path: Path) -> bool:
    """Whether a file makes a library of ops, or registers one by itself."""
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.ImportFrom) and node.module == "torch.library":
            return True
        if (
            isinstance(node, ast.Attribute)
            and (node.attr in _REGISTERING or node.attr.startswith("register_"))
            and ast.unparse(node.value) == "torch.library"
        ):
            return True
    return False


def _made() -> dict[str, tuple[str, set[str]]]:
    """Return what each ``Operators(...)`` is given: by package, its namespace and its sources."""
    found = {}
    for path in sources():
        for node in ast.walk(parsed(path)):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "Operators":
                namespace, packages = map(ast.literal_eval, node.args)
                found[module_name(path).partition(".")[0]] = namespace, set(packages)
    return found


def test_ops_are_registered_in_one_place() -> None:
    registering = {module_name(path) for path in sources() if _registers(path)}
    assert registering == {_REGISTRY, *_PAST}
    assert _made()


@pytest.mark.parametrize("package", _made())
def test_the_sources_of_ops_are_all_that_their_package_imports(package: str) -> None:
    namespace, named = _made()[package]
    imported = {
        name.partition(".")[0]
        for path in sources()
        if module_name(path).partition(".")[0] == package
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in ([node.module or ""] if isinstance(node, ast.ImportFrom) else _names(node))
    }
    ours = {name for name in imported if name.startswith(f"{_CORE}_")}
    assert namespace == package
    assert named == ours | {package}


def _names(node: ast.Import) -> list[str]:
    return [alias.name for alias in node.names]
