"""PyTorch's tests of its example device become tests of another device."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from torchyard_conformance._torch_tests._porting import needs_example, ported
from torchyard_conformance._torch_tests._running import TorchTestsError, read_reasons

_FILE = '''# Owner(s): ["module: PrivateUse1"]
"""Tests."""
from __future__ import annotations

import torch

x = torch.empty(2, device="openreg:1")
torch.openreg.is_initialized()
name = "OpenReg", "reopenreg"
assert x.is_openreg


def load():
    import torch_openreg  # noqa: F401
'''


def test_the_device_is_named_and_loaded_before_the_rest() -> None:
    text = ported(_FILE, "abacus")
    body = ast.parse(text).body
    assert ast.get_docstring(ast.parse(text)) == "Tests."
    kinds = [type(node).__name__ for node in body[1:5]]
    assert kinds == ["ImportFrom", "Import", "ImportFrom", "Expr"]
    assert "_registry().probe_device('abacus')" in text
    assert text.index("probe_device") < text.index("import torch\n")
    assert 'device="abacus:1"' in text
    assert "torch.abacus.is_initialized()" in text
    assert "assert x.is_abacus" in text
    assert text.endswith("def load():\n    pass\n")
    # Names that have the example's in them stay.
    assert '"OpenReg", "reopenreg"' in text


def test_what_the_example_compiles_is_compiled_by_inductor() -> None:
    text = 'torch.compile(f, backend="openreg")\nCompileCounterWithBackend("openreg")\n'
    text += 'assert "openreg" in list_backends()\n'
    found = ported(text, "abacus").splitlines()[-3:]
    assert found[0] == 'torch.compile(f, backend="inductor")'
    assert found[1] == 'CompileCounterWithBackend("inductor")'
    assert found[2] == 'assert "abacus" in list_backends()'


def test_a_file_of_statements_alone_is_loaded_first() -> None:
    assert ported("x = 'openreg'\n", "abacus").splitlines()[-1] == "x = 'abacus'"
    assert "probe_device" in ported("", "abacus")


@pytest.mark.parametrize(
    ("text", "needs"),
    [
        ("import torch_openreg\n", False),
        ("import torch_openreg\ntorch_openreg.init()\n", True),
        ("import torch_openreg as o\n", True),
        ("def f():\n    import torch_openreg._C as c\n", True),
        ("from torch_openreg import x\n", True),
        ("import torch\ntorch.openreg.init()\n", False),
        ("text = 'torch_openreg'\n", False),
    ],
)
def test_files_that_use_the_examples_package_are_recognised(text: str, needs: bool) -> None:
    assert needs_example(text) is needs


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("reasons = 1\n", "expected the table"),
        ("[reasons]\n[more]\n", "nothing else"),
        ('[reasons]\n"test_a.py::A::test_b" = ""\n', "test_b: expected a reason"),
        ("[", "expected a TOML file"),
    ],
)
def test_a_file_of_reasons_that_is_none_is_refused(text: str, said: str, tmp_path: Path) -> None:
    path = tmp_path / "reasons.toml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(TorchTestsError, match=said):
        read_reasons(path)
