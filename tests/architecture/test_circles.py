"""No module imports, by way of others, itself: what a module imports at its top comes before it."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from graphlib import CycleError, TopologicalSorter

import pytest

from tests.architecture.tree import module_name, parsed, sources


def _at_import(body: list[ast.stmt]) -> Iterator[ast.Import | ast.ImportFrom]:
    """Yield the imports that run when a module is imported: not those of functions."""
    for node in body:
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield node
        elif isinstance(node, ast.If):
            if "TYPE_CHECKING" not in ast.unparse(node.test):
                yield from _at_import(node.body)
            yield from _at_import(node.orelse)
        elif isinstance(node, ast.Try):
            for handler in node.handlers:
                yield from _at_import(handler.body)
            yield from _at_import([*node.body, *node.orelse, *node.finalbody])
        elif isinstance(node, ast.With | ast.ClassDef):
            yield from _at_import(node.body)


def _imported(module: str, tree: ast.Module, known: set[str]) -> set[str]:
    """Return which known modules a module imports by name; a package's own parents are implied."""
    found = set()
    for node in _at_import(tree.body):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        else:
            given = f"{node.module}."
            names = [
                f"{given}{alias.name}" if f"{given}{alias.name}" in known else str(node.module)
                for alias in node.names
            ]
        found |= {name for name in names if name in known}
    return found - {module}


def _circle(imports: Mapping[str, set[str]]) -> list[str]:
    """Return modules of which each imports the next, and the last the first; empty without any."""
    try:
        TopologicalSorter(imports).prepare()
    except CycleError as error:
        # Each comes before the one that it is imported by.
        return list(reversed(error.args[1]))
    return []


@pytest.mark.parametrize(
    ("texts", "circle"),
    [
        ({"a": "from b import x", "b": "import a"}, True),
        ({"a": "from b import x", "b": "try:\n    import c\nfinally: pass", "c": "import a"}, True),
        ({"a": "from b import x", "b": "def load():\n    import a"}, False),
        ({"a": "from b import x", "b": "if TYPE_CHECKING:\n    import a"}, False),
        ({"a": "from a.b import x", "a.b": "from a.c import y", "a.c": "import os"}, False),
    ],
)
def test_a_circle_is_found(texts: dict[str, str], circle: bool) -> None:
    imports = {name: _imported(name, ast.parse(text), set(texts)) for name, text in texts.items()}
    assert bool(_circle(imports)) is circle


def test_no_module_imports_itself_by_way_of_others() -> None:
    trees = {module_name(path): parsed(path) for path in sources()}
    imports = {name: _imported(name, tree, set(trees)) for name, tree in trees.items()}
    assert sum(map(len, imports.values())) > len(imports)
    assert not _circle(imports)
