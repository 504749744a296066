"""The arrows of docs/architecture.md hold: who may import whom."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

from tests.architecture.tree import PACKAGES, ROOT, module_name, parsed, sources

_LINT = "from importlinter.cli import lint_imports; import sys; sys.exit(lint_imports())"


def _lint_imports(cwd: Path, *more_sources: Path) -> subprocess.CompletedProcess[str]:
    path = [*more_sources, *(ROOT / package.folder / "src" for package in PACKAGES), ROOT]
    return subprocess.run(
        [sys.executable, "-c", _LINT],
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, path))},
        capture_output=True,
        text=True,
    )


def test_import_contracts_hold() -> None:
    result = _lint_imports(ROOT)
    assert result.returncode == 0, result.stdout + result.stderr


def test_a_plugin_that_imports_more_than_a_contract_is_found(tmp_path: Path) -> None:
    for name, text in {
        "part/__init__.py": "",
        "part/contract.py": "",
        "part/api.py": "",
        "good/__init__.py": "import part.contract\n",
        "bad/__init__.py": "def load():\n    from part.api import thing\n    return thing\n",
    }.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    contract = """
        [tool.importlinter]
        root_packages = ["part", "good", "bad"]
        contract_types = ["allowed: tests.architecture.allowed_imports.AllowedImports"]
        [[tool.importlinter.contracts]]
        name = "contract alone"
        type = "allowed"
        importers = ["{importer}"]
        imported = "part"
        allowed = ["part.contract"]
    """
    outcomes = {}
    for importer in ("good", "bad"):
        (tmp_path / "pyproject.toml").write_text(contract.format(importer=importer))
        outcomes[importer] = _lint_imports(tmp_path, tmp_path)
    assert outcomes["good"].returncode == 0, outcomes["good"].stdout + outcomes["good"].stderr
    assert outcomes["bad"].returncode == 1
    assert "bad imports part.api" in outcomes["bad"].stdout


# Those who import these have torch; torchyard itself imports neither.
_NEED_TORCH = {
    "torchyard.dispatch",
    "torchyard.optimization._measurement",
    "torchyard.optimization._results",
    "torchyard.torch_compat",
}


def test_core_imports_torch_inside_functions_only() -> None:
    at_import = [
        f"{path}:{node.lineno}"
        for path in sources()
        if module_name(path).split(".")[0] == "torchyard" and module_name(path) not in _NEED_TORCH
        for node in parsed(path).body
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in ([node.module] if isinstance(node, ast.ImportFrom) else _names(node))
        if str(name).split(".")[0] == "torch"
    ]
    assert not at_import


def test_core_works_where_torch_cannot_be_imported() -> None:
    program = """
import sys

class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == "torch":
            raise AssertionError("something imported torch")

sys.meta_path.insert(0, Refuse())
import torchyard
for name in torchyard.__all__:
    getattr(torchyard, name)
torchyard.probe_platform()
torchyard.registry()
assert "torch" not in sys.modules
"""
    result = subprocess.run([sys.executable, "-I", "-c", program], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr


def _names(node: ast.Import) -> list[str]:
    return [alias.name for alias in node.names]
