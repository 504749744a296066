"""A package names private parts of torch in one module, torch_compat or _torch_compat."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import pytest

from tests.architecture.tree import module_name, parsed, sources

_ALLOWED = ("torch_compat", "_torch_compat")
# The attributes of tensors that are private, and may be found on any object.
_ATTRIBUTES = {"_cdata", "_is_zerotensor", "_current_level"}


def _private(name: str) -> bool:
    parts = name.split(".")
    return (
        all(map(str.isidentifier, parts))
        and parts[0] == "torch"
        and any(part[:1] == "_" and part[:2] != "__" for part in parts)
    )


def _named(tree: ast.AST) -> Iterator[int]:
    """Yield the lines that name a private part of torch."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and (
            node.attr in _ATTRIBUTES or _private(ast.unparse(node))
        ):
            yield node.lineno
        if isinstance(node, ast.ImportFrom) and not node.level:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
            if any(map(_private, names)):
                yield node.lineno
        if isinstance(node, ast.Import) and any(_private(alias.name) for alias in node.names):
            yield node.lineno


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("torch._C._is_tracing()", True),
        ("from torch.utils._pytree import tree_map", True),
        ("from torch import _guards", True),
        ("import torch._dynamo", True),
        ("storage._cdata", True),
        ("torch.__version__", False),
        ("torch.empty(self._sizes)", False),
        ("from torch.utils import data", False),
    ],
)
def test_a_private_part_is_found(text: str, found: bool) -> None:
    assert bool(list(_named(ast.parse(text)))) == found


def test_private_parts_of_torch_are_named_in_one_module_of_a_package() -> None:
    found = [
        f"{path}:{line}"
        for path in sources()
        for names in [module_name(path).split(".")]
        if names[-1] not in _ALLOWED
        for line in _named(parsed(path))
    ]
    assert not found, "move them to the package's torch_compat: " + ", ".join(sorted(set(found)))


def test_every_entry_of_the_core_is_probed_and_holds() -> None:
    from torchyard import torch_compat

    assert torch_compat.missing() == ()
