"""The ``if`` statements around a line of source, and the collectives that come next."""

from __future__ import annotations

import ast
import itertools
import linecache
from collections.abc import Iterator
from functools import lru_cache
from typing import Final

from torchyard_collectives.flight._history import Branch, Frame

__all__ = ["read_frame"]

_LONGEST_TEST: Final = 120
# Names under which programs call collectives, and torch's public name of each.
_NAMES: Final = {
    name: name
    for name in (
        "all_gather",
        "all_gather_into_tensor",
        "all_reduce",
        "all_reduce_coalesced",
        "all_to_all",
        "all_to_all_single",
        "barrier",
        "broadcast",
        "gather",
        "monitored_barrier",
        "recv",
        "reduce",
        "reduce_scatter",
        "reduce_scatter_tensor",
        "scatter",
        "send",
    )
} | {
    "_all_gather_base": "all_gather_into_tensor",
    "_reduce_scatter_base": "reduce_scatter_tensor",
    "all_gather_single": "all_gather_into_tensor",
    "irecv": "recv",
    "isend": "send",
    "reduce_scatter_single": "reduce_scatter_tensor",
}


@lru_cache(maxsize=4096)
def read_frame(file: str, line: int, function: str) -> Frame:
    """Return a frame with what its source says; without that where there is no source."""
    tree = _parsed(file)
    if tree is None:
        return Frame(file, line, function)
    path = _path(tree, line)
    branches = []
    for node, child in itertools.pairwise(path):
        if isinstance(node, ast.If) and not isinstance(child, ast.expr):
            arm = "body" if any(child is one for one in node.body) else "else"
            test = ast.unparse(node.test)[:_LONGEST_TEST]
            branches.append(Branch(node.lineno, node.end_lineno or node.lineno, arm, test))
    return Frame(file, line, function, tuple(reversed(branches)), tuple(_upcoming(path)))


@lru_cache(maxsize=256)
def _parsed(file: str) -> ast.Module | None:
    lines = linecache.getlines(file)
    if not lines:
        return None
    try:
        return ast.parse("".join(lines))
    except (SyntaxError, ValueError, RecursionError):
        return None


def _path(tree: ast.Module, line: int) -> list[ast.AST]:
    """Return the nodes around a line within its innermost function, outermost first."""
    path: list[ast.AST] = [tree]
    while True:
        inner = [
            child
            for child in ast.iter_child_nodes(path[-1])
            if isinstance(child, ast.stmt | ast.ExceptHandler | ast.match_case)
            and _first(child) <= line <= _last(child)
        ]
        if not inner:
            return path
        if isinstance(inner[0], ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            path = []
        path.append(inner[0])


def _first(node: ast.AST) -> int:
    return int(getattr(node, "lineno", 0) or getattr(getattr(node, "pattern", None), "lineno", 0))


def _last(node: ast.AST) -> int:
    if isinstance(node, ast.match_case):
        return _last(node.body[-1])
    return int(getattr(node, "end_lineno", 0) or 0)


def _upcoming(path: list[ast.AST]) -> Iterator[str]:
    """Yield the collectives in the statements that follow the line's in the same block."""
    if len(path) < 2:
        return
    for name in ("body", "orelse", "finalbody", "handlers"):
        block = getattr(path[-2], name, None)
        if not isinstance(block, list):
            continue
        places = [number for number, statement in enumerate(block) if statement is path[-1]]
        for statement in block[places[0] + 1 :] if places else ():
            for node in ast.walk(statement):
                if isinstance(node, ast.Call):
                    called = getattr(node.func, "attr", getattr(node.func, "id", ""))
                    if called in _NAMES:
                        yield _NAMES[called]
