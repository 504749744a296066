"""Names become types at the edge; nothing behind it compares them, or reads the environment."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import pytest

from tests.architecture.tree import ROOT, module_name, parsed, sources

_CHOICES = {"backend", "device", "device_type", "impl", "implementation", "plugin"}
# Where a string from outside becomes a type, and where an implementation states its limits.
_EDGES = ("parse", "_parse", "supports")
_SETTINGS = "torchyard._environ"


def _subject(node: ast.expr) -> str:
    """Return the last word of a name or an attribute chain, without its underscore."""
    name = node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")
    return str(name).lstrip("_")


def _names_one(node: ast.expr) -> bool:
    """Whether an expression is a literal name, or a literal collection of them."""
    if isinstance(node, ast.Tuple | ast.List | ast.Set):
        return any(map(_names_one, node.elts))
    # "*" is the contracts' own word for every device, not the name of one.
    return isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value != "*"


def _compares(node: ast.Compare) -> bool:
    sides = [node.left, *node.comparators]
    if isinstance(node.ops[0], ast.Eq | ast.NotEq):
        return any(_subject(side) in _CHOICES for side in sides) and any(map(_names_one, sides))
    collected = not isinstance(sides[-1], ast.Constant) and _names_one(sides[-1])
    return (
        isinstance(node.ops[0], ast.In | ast.NotIn)
        and collected
        and _subject(node.left) in _CHOICES
    )


def _comparisons(node: ast.AST) -> Iterator[int]:
    """Yield the lines that compare a choice with a literal name, outside the edges."""
    if isinstance(node, ast.FunctionDef) and node.name.startswith(_EDGES):
        return
    if isinstance(node, ast.Compare) and _compares(node):
        yield node.lineno
    if isinstance(node, ast.Match) and _subject(node.subject) in _CHOICES:
        yield node.lineno
    for child in ast.iter_child_nodes(node):
        yield from _comparisons(child)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("if backend == 'sdpa': pass", 1),
        ("if request.device in ('cpu', 'cuda'): pass", 1),
        ("match self._implementation:\n    case 'cpu.native': pass", 1),
        ("if device == '*': pass", 0),
        ("if '.' not in implementation: pass", 0),
        ("def parse_device(device):\n    return device == 'cpu'", 0),
        ("def supports(request, platform):\n    return request.device != 'cpu'", 0),
    ],
)
def test_a_comparison_with_a_name_is_found(text: str, found: int) -> None:
    assert len(list(_comparisons(ast.parse(text)))) == found


def test_nothing_dispatches_on_the_name_of_a_backend() -> None:
    found = [f"{path}:{line}" for path in sources() for line in _comparisons(parsed(path))]
    assert not found, "compare types, or let the registry choose: " + ", ".join(found)


def test_only_the_settings_module_reads_the_environment() -> None:
    readers = {
        str(path)
        for path in sources()
        if module_name(path) != _SETTINGS
        for node in ast.walk(parsed(path))
        if (
            isinstance(node, ast.Attribute)
            and ast.unparse(node) in {"os.environ", "os.getenv", "os.environb"}
        )
        or (isinstance(node, ast.ImportFrom) and node.module == "os")
    }
    assert not readers


def test_native_code_does_not_read_the_environment() -> None:
    readers = [
        path
        for suffix in (".cc", ".cpp", ".h")
        for path in sources(suffix)
        if "getenv(" in (ROOT / path).read_text(encoding="utf-8")
    ]
    assert not readers
