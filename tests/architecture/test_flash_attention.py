"""No code takes torch's own ways into FlashAttention-4, of which each gives wrong results unseen.

docs/plugins/cuda.md says which. The adapter calls the functions of flash-attn-4 themselves.
"""

from __future__ import annotations

import ast

import pytest

from tests.architecture.tree import parsed, sources

# torch's switch, and the backend of its flex_attention.
_WAYS = {"activate_flash_attention_impl", "FLASH"}


def _taken(tree: ast.AST) -> list[str]:
    names = (
        getattr(node, "attr", None)
        or getattr(node, "id", None)
        or getattr(node, "value", None)
        or getattr(node, "name", None)
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute | ast.Name | ast.Constant | ast.alias)
    )
    return [name for name in names if isinstance(name, str) and name in _WAYS]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("from torch.nn.attention import activate_flash_attention_impl", True),
        ("attention.activate_flash_attention_impl('FA4')", True),
        ("flex_attention(q, k, v, kernel_options={'BACKEND': 'FLASH'})", True),
        ("'the backend FLASH drops lists'", False),
    ],
)
def test_a_way_is_found(text: str, found: bool) -> None:
    assert bool(_taken(ast.parse(text))) == found


def test_no_code_takes_one() -> None:
    assert not [str(path) for path in sources() if _taken(parsed(path))]
