"""PyTorch's tests name its example device, ``openreg``; ours name the device under test."""

from __future__ import annotations

import ast
import re
from typing import Final

__all__ = ["needs_example", "ported"]

# The device's type, and a tensor's attribute of that name.
_NAME: Final = re.compile(r"\b(is_)?openreg\b")
# The example's compiler backend has its name; other devices are compiled for by Inductor.
_BACKEND: Final = re.compile(r"""(\bbackend=|\bCompileCounterWithBackend\()(["'])openreg\2""")
# The example's own package, which no other device has; most files import it for its effect alone.
_PACKAGE: Final = "torch_openreg"
_IMPORT: Final = re.compile(rf"^(\s*)import {_PACKAGE}\b(?!\.).*$", re.MULTILINE)


def ported(text: str, device: str) -> str:
    """Return the text of a file of tests for another device, which it loads first.

    What the example compiles by the backend of its name, Inductor compiles.

    Args:
        text: of PyTorch's file.
        device: its type.

    Raises:
        SyntaxError: the file is no Python.
    """
    compiled = _BACKEND.sub(r"\1\2inductor\2", text)
    named = _NAME.sub(lambda found: f"{found[1] or ''}{device}", compiled)
    lines = _IMPORT.sub(r"\1pass", named).splitlines(keepends=True)
    place = _first_statement(ast.parse(text)) - 1
    # A device is registered with a torch that is there.
    load = (
        "import torch as _torch\n"
        "from torchyard import registry as _registry\n"
        f"_registry().probe_device({device!r})\n"
    )
    return "".join([*lines[:place], load, *lines[place:]])


def needs_example(text: str) -> bool:
    """Return whether a file uses what is in the package of PyTorch's example."""
    return any(_uses_package(node) for node in ast.walk(ast.parse(text)))


def _uses_package(node: ast.AST) -> bool:
    if isinstance(node, ast.Import):
        return any(
            alias.name.startswith(f"{_PACKAGE}.") or (alias.name == _PACKAGE and alias.asname)
            for alias in node.names
        )
    if isinstance(node, ast.ImportFrom):
        return (node.module or "").partition(".")[0] == _PACKAGE
    return isinstance(node, ast.Name) and node.id == _PACKAGE


def _first_statement(module: ast.Module) -> int:
    """Return the line of the first statement that is no docstring and no future import."""
    for place, node in enumerate(module.body):
        is_docstring = place == 0 and ast.get_docstring(module) is not None
        is_future = isinstance(node, ast.ImportFrom) and node.module == "__future__"
        if not is_docstring and not is_future:
            return node.lineno
    return len(module.body) + 1
