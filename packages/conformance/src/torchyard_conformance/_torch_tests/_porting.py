"""PyTorch's tests name its example device, ``openreg``; ours name the device under test."""

from __future__ import annotations

import ast
import re
from typing import Final

__all__ = ["needs_example", "ported"]

_NAME: Final = re.compile(r"\bopenreg\b")
# The example's own package, which no other device has.
_PACKAGE: Final = "torch_openreg"


def ported(text: str, device: str) -> str:
    """Return the text of a file of tests for another device, which it loads first.

    Args:
        text: of PyTorch's file.
        device: its type.

    Raises:
        SyntaxError: the file is no Python.
    """
    lines = _NAME.sub(device, text).splitlines(keepends=True)
    place = _first_statement(ast.parse(text)) - 1
    # A device is registered with a torch that is there.
    load = (
        "import torch as _torch\n"
        "from torchyard import registry as _registry\n"
        f"_registry().probe_device({device!r})\n"
    )
    return "".join([*lines[:place], load, *lines[place:]])


def needs_example(text: str) -> bool:
    """Return whether a file uses the package of PyTorch's example, beside the device."""
    return any(_PACKAGE in name for node in ast.walk(ast.parse(text)) for name in _imported(node))


def _imported(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    return [node.module or ""] if isinstance(node, ast.ImportFrom) else []


def _first_statement(module: ast.Module) -> int:
    """Return the line of the first statement that is no docstring and no future import."""
    for place, node in enumerate(module.body):
        is_docstring = place == 0 and ast.get_docstring(module) is not None
        is_future = isinstance(node, ast.ImportFrom) and node.module == "__future__"
        if not is_docstring and not is_future:
            return node.lineno
    return len(module.body) + 1
